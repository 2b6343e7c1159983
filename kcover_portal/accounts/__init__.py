"""Who may do what: users with roles, API tokens, agents' credentials.

Belongs here: identities and the one question "may this one do that here?". Never here: what the deed does.
"""
