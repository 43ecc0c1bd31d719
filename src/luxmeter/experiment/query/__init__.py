"""Runs that are kept: found, compared, drawn."""
