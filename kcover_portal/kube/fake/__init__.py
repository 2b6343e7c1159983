"""A cluster in memory, for tests: it keeps Kubernetes objects and refuses what an API server refuses.

Resource versions conflict, budgets and uid preconditions hold, watches have a history that can be forgotten.
``cluster`` is the port over it; ``hands`` is what kubelet, controllers and people do; ``objects`` is the store. It
decodes objects as the live client does, and computes the same patches. Behaviour that no API server has does not belong
here.
"""

from kcover_portal.kube.fake.calls import Call
from kcover_portal.kube.fake.cluster import FakeCluster

__all__ = ["Call", "FakeCluster"]
