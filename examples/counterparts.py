"""What MindSpore has for an operator of torch, and what differs: looked up, neither framework is run."""

from luxmeter.operators.counterparts import counterpart_of, counterparts

for op in ("torch.add", "torch.nn.functional.leaky_relu", "Tensor.add_", "torch.einsum", "torch.cholesky"):
    known = counterpart_of(op)
    assert known is not None
    print(f"{op}: {known.status} {[target.name for target in known.targets]} {known.why}")

added = counterpart_of("torch.add")
assert added is not None and added.is_good and added.targets[0].name == "mindspore.mint.add"
in_place = counterpart_of("Tensor.add_")
assert in_place is not None and not in_place.is_good and "its argument is not changed" in in_place.why
print(sum(known.status == "equal" for known in counterparts().values()), "names give equal results")
