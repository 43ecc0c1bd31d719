"""What runs jobs: one file each behind one Protocol."""
