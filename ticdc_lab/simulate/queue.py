"""What waits in the queue of a kernel."""

MESSAGE, TIMER, START, FAULT, CALL, MESSAGES = range(6)
"""Kinds of entries: one message, a timer, the start of a node, a fault, a function, a stretch of messages."""
