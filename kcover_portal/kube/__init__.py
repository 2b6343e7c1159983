"""The Kubernetes client, behind a small port of idempotent, declarative verbs.

Belongs here: ``port`` (the protocol, its values and errors), ``wire`` (decoding of Kubernetes JSON), ``change``
(patches of nodes), ``http`` and ``verbs`` (the port over HTTP), ``live`` (a real API server; the only module that
imports ``kubernetes``), ``fake`` (a cluster in memory, for tests) and ``connections`` (one client per cluster).
Never here: what should be done to a cluster, and when.
"""
