"""Fuzzing campaigns: generate cases within a budget, record failures, minimize and confirm them. Also replay."""
