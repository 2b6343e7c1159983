"""Policies: the content of a RescuePolicy or WarmStandbyPolicy.

``document`` parses a policy; ``kcover.decisions.match`` finds the rule for a fault. Both are pure, so that a decision
can be replayed over history. Never here: YAML, rows, the cluster, or the consequences of a match.
"""
