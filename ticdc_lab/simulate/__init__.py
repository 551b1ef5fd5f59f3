"""Deterministic simulators: what happens when, and why (`design/simulators.md`)."""
