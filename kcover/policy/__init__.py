"""Policies: what a RescuePolicy says, and which rule a fault meets.

``document`` reads a policy, ``matching`` finds the rule. Pure: plain values in, plain values out, so that a decision
can be replayed over history. Never here: YAML, rows, the cluster, what follows from a match (``kcover.decision``).
"""
