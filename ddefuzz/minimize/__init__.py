"""MAKING IT SMALL: pure passes, one total order, and the driver that asks "still the same signature?"."""
