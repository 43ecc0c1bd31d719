"""Pages and pictures: what a result looks like in a browser or on paper. Each takes a finished result and computes nothing."""
