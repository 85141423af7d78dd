"""Test cases: programs as immutable trees, their text form, and how their inputs are made."""
