"""Each rule of the house fails on a planted fault."""
