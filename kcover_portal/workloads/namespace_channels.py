"""The notification channels of namespaces, for jobs whose own annotation names none.

Another app stores them. It registers a function that reads those of one cluster.
"""

from collections.abc import Callable

from kcover_portal.kube import connections, port

Channels = Callable[[str], str]  # from a namespace to the name of its channel, "" for none
_readers: list[Callable[[int], Channels]] = []


def read_with(reader: Callable[[int], Channels]) -> None:
    """Registers the function that reads the channels of the cluster with this key."""
    _readers[:] = [reader]


def of(client: port.Cluster) -> Channels:
    """The channels of the namespaces of one cluster, by its client."""
    key = connections.key_of(client)
    if key is None or not _readers:
        return lambda _namespace: ""
    return _readers[0](key)
