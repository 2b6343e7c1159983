"""RescuePolicies: their texts, revision by revision, and the rules in force.

Belongs here: YAML in and out, line-exact errors, revisions. Never here: what a rule means (kcover.policy).
"""
