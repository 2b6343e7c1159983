"""The simulator: a GPU cluster that is not there.

Belongs here: a Kubernetes API over HTTP (``kubeapi``), the virtual nodes, pods, controllers and agents that live behind
it (``world``), and the switches that break them. Never here: anything of the portal. It is an outside system that the
portal, ``kubectl`` and the official client talk to over HTTP, so it may import ``kcover`` and ``agents`` and nothing
else
of this repository.
"""
