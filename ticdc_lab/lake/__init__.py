"""From a topic that goes on into Delta tables."""
