"""Watching shape reasoning: torch's one door, hooked, and the raw events that it emits."""
