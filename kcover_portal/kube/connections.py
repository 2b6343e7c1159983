"""One client a cluster, kept while its way in stays the same."""

import hashlib
import threading
from collections.abc import Callable

from kcover_portal.kube import live, port

_lock = threading.Lock()
_clients: dict[int, tuple[str, port.Cluster]] = {}


def connect(key: int, *, kubeconfig: str, context: str, in_cluster: bool) -> port.Cluster:
    """The client for the cluster with this key; a changed kubeconfig makes a new one. Raises port.KubeError."""
    way_in = hashlib.sha256(f"{in_cluster}\0{context}\0{kubeconfig}".encode()).hexdigest()
    with _lock:
        kept = _clients.get(key)
        if kept is not None and kept[0] in (way_in, "installed"):
            return kept[1]
        client = live.in_cluster() if in_cluster else live.from_kubeconfig(kubeconfig, context=context or None)
        _clients[key] = (way_in, client)
        return client


def install(key: int, client: port.Cluster) -> Callable[[], None]:
    """Puts a client (a fake, in tests) in place for a cluster; returns what takes it out again."""
    with _lock:
        _clients[key] = ("installed", client)
    return lambda: _clients.pop(key, None) and None
