"""Users with roles, API tokens and agents' credentials.

Belongs here: identities and permission checks. Never here: the actions that they permit.
"""
