"""The console: pages and fragments for people, and the socket that tells open pages what changed.

A door: a view parses, asks ``reads`` or one service, renders. A fragment is the same view asked by htmx, so that there
is one rendering path and one permission path. Belongs here: how things look and how they are laid out for reading.
Never here: rules, state changes, anything another app would want to import.
"""
