"""Policies: what a RescuePolicy says, which rule a fault meets, and what is to be done about it.

``document`` reads a policy, ``matching`` finds the rule, ``decision`` judges. Pure: plain values in, plain values out, so
that a decision can be replayed over history. Never here: YAML, rows, the cluster.
"""
