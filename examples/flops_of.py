"""An operator of your own: unknown until you say what it costs, never silently zero."""

import torch

import luxmeter as lux


@torch.library.custom_op("example::smooth", mutates_args=())
def smooth(x: torch.Tensor, width: int) -> torch.Tensor:
    return torch.nn.functional.avg_pool1d(x, width, stride=1)


@smooth.register_fake
def _(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] - width + 1)


def model(x):
    return smooth(x, 5).relu()


x = torch.randn(2, 4, 100)
before = lux.analyze(model, x)
print(before.unknown_ops)
assert [op.name for op in before.unknown_ops] == ["example::smooth"]
assert before.flops == 2 * 4 * 96  # relu alone


@lux.flops_of(smooth)
def smooth_flops(x, width, *, out):  # the operator's arguments; tensors come as shapes
    return width * out.numel()


after = lux.analyze(model, x)
print(f"{before.flops} FLOPs without the formula, {after.flops} with it")
assert after.unknown_ops == () and after.flops == before.flops + 5 * 2 * 4 * 96
