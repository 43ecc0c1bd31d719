"""A torch optimizer as parameters: its name and options, and the way from there to the object."""

from __future__ import annotations

from typing import Any

from luxmeter.errors import UsageError, suggestion
from luxmeter.experiment.parameters.params import BaseParams


class OptimParams(BaseParams, takes_new_names=True):
    """`name` is a class of torch.optim; all other names are its options."""

    name: str = "SGD"

    def build(self, parameters: Any) -> Any:
        """The optimizer over `parameters` (an iterable, named or in groups, as torch takes them)."""
        import torch

        known = [n for n, v in vars(torch.optim).items() if isinstance(v, type) and n != "Optimizer"]
        if self.name not in known:
            raise UsageError(
                "unknown-optimizer",
                f"torch.optim has no optimizer {self.name!r}.",
                suggestion(self.name, known) or f"It has {', '.join(sorted(known))}.",
            )
        options = {option: value for option, value in self.to_dict().items() if option != "name"}
        try:
            return getattr(torch.optim, self.name)(parameters, **options)
        except TypeError as error:
            raise UsageError(
                "optimizer-options",
                f"{self.name} was given {options}: {error}.",
                "Change the options of `optim`.",
            ) from error
