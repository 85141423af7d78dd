"""Run every op of the catalogue and of OpInfo systematically, write the census of failures, and compare it with
upstream's list.
"""
