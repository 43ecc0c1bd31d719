"""What is called around a training: plain objects, one file for each purpose."""
