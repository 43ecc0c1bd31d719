"""Runs that other tools recorded, and files that other tools read."""
