"""The daily service: new wheels of torch, and what changed since the day before."""
