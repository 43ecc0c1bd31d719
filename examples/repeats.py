"""Is the wider network better, or was it luck? Three seeds of each, a mean with an interval, and a test."""

import tempfile

import torch

import luxmeter as lux
from luxmeter.experiment import compare_groups, find_repeats, repeat_table, variant_table
from luxmeter.store import Lab

torch.set_num_threads(1)  # the model is small


def train(width: int, seed: int, lab: Lab) -> None:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    x = torch.rand(256, 2) * 4 - 2
    y = torch.sin(2 * x[:, :1]) * x[:, 1:]
    with lux.Experiment("surface", {"width": width, "seed": seed}, lab=lab, quiet=True, system_s=0) as exp:
        for step in range(150):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            exp.log({"loss": loss}, step=step)


with tempfile.TemporaryDirectory() as folder:
    lab = Lab.open(folder)
    for width in (2, 4, 32):
        for seed in range(3):
            train(width, seed, lab)
    groups = find_repeats(lab, name="surface")
    repeat_table(groups).print()
    table = variant_table(groups, "loss")
    table.print()
    narrow, _, wide = groups
    found = compare_groups(narrow, wide, "loss")
    print(f"{narrow.label} -> {wide.label}: {found.why}")
    assert [group.n for group in groups] == [3, 3, 3] and wide.seeds == [0, 1, 2]
    assert table.rows[0].group.params["width"] == 32 and found.difference < 0
    assert found.low is not None and found.high is not None and found.low < found.difference < found.high
    lab.close()
