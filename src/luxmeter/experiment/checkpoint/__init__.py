"""The state of a training in files, and back."""
