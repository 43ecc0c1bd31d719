"""Operators that other tools captured."""
