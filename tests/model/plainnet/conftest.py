"""One thread of torch: the networks here are small, and two workers of pytest share two cores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

# torch.manual_seed is another object once this is imported, which torch's FLOP counter does on first use; the
# guard of tests/conftest.py would take that for something left patched.
import torch._dynamo


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
