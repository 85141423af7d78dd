"""Findings under several versions of torch: run them, and list in which versions they fail, are fixed or fail again."""
