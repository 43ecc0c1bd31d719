"""Random state: set, kept, put back."""
