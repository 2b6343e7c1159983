"""A simulated GPU cluster.

Belongs here: a Kubernetes API over HTTP (``kubeapi``), the virtual nodes, pods, controllers and agents behind it
(``world``), and the switches that break them. Never here: anything of the portal. The simulator is an outside system:
the portal, ``kubectl`` and the official client talk to it over HTTP. It may import ``kcover`` and ``agents`` and
nothing else of this repository.
"""
