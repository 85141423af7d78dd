"""Which guard sites have been reached: in one run, in everything run so far, out of all that torch's source has."""
