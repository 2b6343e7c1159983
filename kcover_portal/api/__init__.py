"""REST for people and programs, and the endpoints of the agents.

Belongs here: parsing, permission checks, one service call, the response. Never here: a rule.
"""
