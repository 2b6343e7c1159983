"""RescuePolicies: their texts, their revisions and the active rules.

Belongs here: reading and writing YAML, errors with line numbers, revisions. Never here: what a rule means
(``kcover.policy``).
"""
