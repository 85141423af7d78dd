"""How long torch.export takes with many unbacked symbols: workloads of growing size, counted and timed."""
