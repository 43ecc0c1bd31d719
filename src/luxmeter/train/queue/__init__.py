"""Jobs that wait for room on a machine, and sweeps of them. Nothing here imports torch."""
