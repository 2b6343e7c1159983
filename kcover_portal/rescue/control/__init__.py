"""What people and other systems do to a rescue: request, approve, cancel, retry, skip, call back.

Belongs here: one module for each way to intervene. Never here: running steps.
"""
