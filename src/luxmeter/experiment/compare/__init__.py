"""Runs compared: what differs, what explains it, repeats and their statistics."""
