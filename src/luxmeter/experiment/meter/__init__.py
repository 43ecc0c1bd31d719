"""Values of a training by name, and their averages."""
