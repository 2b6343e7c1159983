"""Users with roles, API tokens and agents' credentials.

Belongs here: identities and permission checks. Never here: the actions that they permit (``second_admins`` adds the
people to one of the fleet's).
"""
