"""Kubernetes, behind a small port of idempotent verbs that say the wanted end.

Here belongs how a cluster is spoken to: ``port`` (the Protocol, its values and errors), ``wire`` (Kubernetes JSON to
values), ``change`` (which patch makes a node what it should be), ``http`` and ``verbs`` (the port over HTTP), ``live``
(a real API server; the only module that imports ``kubernetes``), ``fake`` (one in memory, for tests) and
``connections`` (one client a cluster). What should be done to a cluster, and when, never belongs here.
"""
