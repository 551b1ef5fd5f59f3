"""What an event is: its columns and types, moments, keys of its place, and the DDL that it may carry."""
