"""Changes of a user's code that let capture succeed: found, verified against eager, ranked by harm."""
