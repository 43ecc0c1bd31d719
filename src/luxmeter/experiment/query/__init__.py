"""Runs found, by a question or by name, and the code that they ran."""
