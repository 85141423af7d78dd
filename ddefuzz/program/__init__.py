"""What a test case is: programs as immutable trees, their one text form, and how their inputs are made."""
