"""Decisions and rescues: what is to be done about a fault, and doing it, step by step.

Belongs here: judging, laying down plans, running steps, holding back, settling. Never here: how a cluster is spoken to
(kube) or what a rule means (kcover.policy).
"""
