"""What is measured inside a run lies in it, and is read back from it."""

import torch

import luxmeter as lux

if __name__ == "__main__":  # the benchmark's workers import this file
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
    with lux.Experiment("measured", {"hidden": 128}) as exp:
        with lux.trace() as t:
            net(torch.randn(32, 64)).sum().backward()
        operators = t.operators().filter(name="*Linear*")
        lux.bench(operators, budget_s=0.5, quiet=True)
        lux.analyze(net, torch.randn(32, 64))

    run = lux.runs()[0]
    for result in run.results():
        print(f"{run.id}/{result.name}: {result.title}")
    assert [result.name for result in run.results()] == ["trace", "ops", "bench", "model"]
    assert run.id == exp.id and len(run.bench) == 2
    assert run.model.params == sum(weight.numel() for weight in net.parameters())
    assert run.trace.table()["torch.nn.Linear"].n == 2
