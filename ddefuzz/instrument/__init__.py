"""Instrumentation: hooks on torch's `ShapeEnv.evaluate_expr`, and the raw events that they record."""
