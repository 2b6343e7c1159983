"""The watch of a large cluster: its memory, its first list, and what it makes of an API server in trouble."""
