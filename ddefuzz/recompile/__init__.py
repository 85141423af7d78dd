"""How often torch.compile compiles one function over calls of different sizes, and which guards are the reason."""
