"""The results of `ddefuzz check`: rows, symbols named in the user's terms, and tested advice."""
