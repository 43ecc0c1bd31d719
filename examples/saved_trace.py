"""Start and stop tracing by hand, save the trace, and read it again later."""

import torch

import luxmeter as lux

lux.start(totals=True)  # counts, sums and histograms only: for long runs
for n in (4, 8):
    torch.sin(torch.ones(n))
t = lux.stop()

path = t.save("my-trace")
again = lux.load_trace(path)
for row in again.table("signature"):
    print(f"{row.name:<12} {row.detail:<30} {row.n} x {row.mean_ns / 1e3:.1f} us")

assert again.table()["torch.sin"].n == 2
assert [row.n for row in again.table("signature") if row.name == "torch.sin"] == [1, 1]
