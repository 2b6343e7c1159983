"""The connection to the portal.

Belongs here: the protocol (the meaning of the portal's answers), the HTTP client, the node's credential. Never here:
the content of a report, or the effect of a command.
"""
