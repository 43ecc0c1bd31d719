"""The way back to a run: its code and checkpoints, the run once more, the run elsewhere."""
