"""A run once more, and whether it came out the same; its code and checkpoints brought back."""
