"""The Kubernetes API over HTTP: what clients can see and do, and how errors are worded.

Belongs here: the object store with its resource versions and watch history, selectors, patches, validation, eviction
with disruption budgets, garbage collection by owner, kubectl's tables, authorization, the request log, and faults of
the API server itself. Never here: components that change objects on their own (kubelets, schedulers, job controllers).
They live in ``simulator.world`` and work on the ``store.Store``.

Everything runs in the thread of one event loop; nothing here is locked.
"""
