"""What a run is given: parameters, where they come from, what they may be."""
