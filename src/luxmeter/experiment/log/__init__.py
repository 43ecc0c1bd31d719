"""What a training says: on the console, in files, in one line that refreshes itself."""
