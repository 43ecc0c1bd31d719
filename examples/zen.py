"""The Zen score: compare architectures without training them."""

import torch

from luxmeter.model import grad_norm_score, naswot_score, synflow_score, zen_score
from luxmeter.model.plainnet import PlainNet

torch.set_num_threads(1)
shallow = PlainNet("SuperConvK3BNRELU(3,16,1,1)SuperResK3K3(16,32,2,16,1)", num_classes=10)
deep = PlainNet("SuperConvK3BNRELU(3,16,1,1)SuperResK3K3(16,32,2,16,4)", num_classes=10)

size = (8, 3, 16, 16)
for name, net in (("shallow", shallow), ("deep", deep)):
    score = zen_score(net, input_size=size, repeat=4)
    print(f"{name:8} zen {score.value:6.2f} ± {score.precision:.2f}")
assert zen_score(deep, input_size=size).value > zen_score(shallow, input_size=size).value

# The published algorithm never resets its running variances, so its score rises with `repeat`.
once, often = (zen_score(shallow, input_size=size, repeat=n, mode="published").value for n in (1, 16))
print(f"published: {once:.2f} at repeat=1, {often:.2f} at repeat=16")
assert often > once + 1

# Other scores of untrained networks.
print(f"naswot {naswot_score(deep, input_size=size):.1f}")
print(f"synflow 1e{synflow_score(deep, input_size=size):.1f}")
print(f"gradient norm {grad_norm_score(deep, input_size=size):.1f}")
