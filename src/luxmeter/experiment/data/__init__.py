"""Data with a position."""
