"""Writes a finding as a program for plain torch: a script that recognizes the failure, and a short snippet."""
