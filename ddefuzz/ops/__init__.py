"""The catalogue of operations that programs may call, with the rules for drawing their arguments."""
