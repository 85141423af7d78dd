"""Which guard sites were reached: by one run, by all runs so far, out of all in torch's source."""
