"""A finding as programs that torch alone runs: a script that recognizes the failure, and a snippet to paste."""
