"""Tests of key functions on drawn tensors: the properties that a specialization key must have (`ddefuzz check-key`)."""
