"""A cluster in memory, for tests. It stores Kubernetes objects and rejects what an API server rejects.

Resource versions conflict, budgets and uid preconditions hold, and a watch's history can be compacted. ``cluster``
implements the port, ``hands`` plays kubelet, controllers and people, and ``objects`` is the store. Objects are decoded
and patched by the same code as in the live client. Never here: behaviour that no API server has.
"""

from tests.kube_fake.calls import Call as Call
from tests.kube_fake.cluster import FakeCluster as FakeCluster
