"""Control runs: is a failure about data, or does the same program fail with static and with backed sizes as well?"""
