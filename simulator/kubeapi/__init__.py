"""The Kubernetes API over HTTP: what clients can see and do, and in which words they are refused.

Belongs here: the object store with its resource versions and watch history, selectors, patches, validation, eviction
with disruption budgets, garbage collection by owner, kubectl's tables, who may call, what was called, and faults of the
API server itself. Never here: what makes objects change on their own (kubelets, schedulers, job controllers): they live
in ``simulator.world`` and work on the ``store.Store``.

Everything runs in one event loop's thread; nothing here is locked.
"""
