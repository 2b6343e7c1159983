"""REST for people and programs, and the door that agents report at.

Belongs here: parsing, permission, one service call, the answer. Never here: a rule.
"""
