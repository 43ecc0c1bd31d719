"""What kind of work a call is, by its name."""

from __future__ import annotations

KINDS = (
    "modules",
    "operators",
    "backward",
    "optimizer",
    "data",
    "communication",
    "your functions and sections",
    "outside the calls",
    "recording (Luxmeter itself)",  # within calls; what lies between them is part of the time outside
)
MODULES, OPERATORS, BACKWARD, OPTIMIZER, DATA, COMMUNICATION, YOURS, OUTSIDE, RECORDING = range(len(KINDS))
WHOLE = (BACKWARD, OPTIMIZER, DATA, COMMUNICATION)  # all that happens inside one of these belongs to it


def kind_of(name: str, path: str = "") -> int:
    """The kind of a call by its name; `path` is that of a module in its model."""
    if path:
        return MODULES
    if name.startswith(("torch.optim.", "torch.amp.GradScaler")) or name.endswith(
        (".zero_grad", ".clip_grad_norm_", ".clip_grad_value_")
    ):
        return OPTIMIZER
    if name.startswith(("torch.autograd.", "mindspore.grad", "mindspore.value_and_grad")) or name.endswith(
        ".backward"
    ):
        return BACKWARD
    if name.startswith("torch.utils.data.") or "DataLoader" in name:
        return DATA
    if name.startswith(("torch.distributed.", "mindspore.communication.")):
        return COMMUNICATION
    if name.startswith("torch.nn.") and not name.startswith(
        ("torch.nn.functional.", "torch.nn.init.", "torch.nn.utils.")
    ):
        return MODULES
    if not name[:1].isidentifier():  # `[]`, `==`: operators as Python writes them
        return OPERATORS
    return OPERATORS if name.startswith(("torch.", "Tensor.", "torchvision.", "mindspore.")) else YOURS
