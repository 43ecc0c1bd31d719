"""A script that knows nothing of luxmeter."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=5)
options = parser.parse_args()
x = 10.0
for _ in range(options.steps):
    x -= options.lr * 2 * (x - 3)
print(f"x = {x:.4f}")
