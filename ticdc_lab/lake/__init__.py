"""From a growing topic into Delta tables."""
