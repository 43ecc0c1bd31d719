"""What is kept of a run while it goes on: its code, output, files, machine."""
