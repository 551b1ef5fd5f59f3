"""The audit that runs all day: a topic is followed, and judged as its messages come."""
