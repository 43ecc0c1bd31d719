"""Reports for a terminal that are more than one table."""
