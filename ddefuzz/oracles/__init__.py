"""What "wrong" means: each oracle turns observations into a verdict or a failure."""
