"""Control runs: capture a program with static and with backed sizes, to see whether its failure depends on data."""
