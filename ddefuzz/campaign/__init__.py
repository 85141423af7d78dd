"""All of it, for a budget: cases in order, failures recorded, minimized, confirmed."""
