"""Runs rescues: claim under a lease, run the step, settle the outcome, reconcile with the cluster.

Belongs here: what workers do by themselves. Never here: which rescue to open.
"""
