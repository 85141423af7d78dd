"""Changes of PyTorch that mend findings: grouped, written as patches, and verified in a copy of torch."""
