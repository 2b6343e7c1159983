"""The console: pages and fragments for people, and the socket that tells open pages what changed.

A view parses, calls ``reads`` or one service, and renders. A fragment is the same view requested by htmx, so that there
is one rendering path and one permission path. Belongs here: presentation and layout. Never here: rules, state changes,
or anything that another app would want to import.
"""
