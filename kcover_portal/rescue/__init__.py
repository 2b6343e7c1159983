"""Decisions and rescues: decide what to do about a fault, and do it step by step.

Belongs here: deciding, creating rescues, running steps, guards, settling. Never here: how a cluster is called (kube) or
what a rule means (kcover.policy).
"""
