"""The connection to the portal.

Belongs here: the protocol (what the portal's answers mean), the HTTP client, the node's credential. Never here: what a
report contains, or what a command does.
"""
