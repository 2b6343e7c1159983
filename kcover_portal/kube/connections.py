"""Keeps one client per cluster for as long as its credentials do not change."""

import hashlib
import threading
from collections.abc import Callable

from kcover_portal.kube import bounds, kubeconfig_rules, live, port

_lock = threading.Lock()
_clients: dict[int, tuple[str, port.Cluster]] = {}


def connect(
    key: int, *, kubeconfig: str, context: str, in_cluster: bool, resolve: bounds.Resolve | None = None
) -> port.Cluster:
    """Returns the client of the cluster with this key; changed credentials create a new one. Raises port.KubeError.

    ``resolve``: returns the addresses that may be called for a kubeconfig that somebody pasted into a page.
    """
    access = hashlib.sha256(f"{in_cluster}\0{context}\0{kubeconfig}".encode()).hexdigest()
    with _lock:
        kept = _clients.get(key)
        if kept is not None and kept[0] in (access, "installed"):
            return kept[1]
        if not in_cluster:
            kubeconfig_rules.check(kubeconfig)
        client = live.in_cluster() if in_cluster else _of_kubeconfig(kubeconfig, context, resolve)
        _clients[key] = (access, client)
        return client


def _of_kubeconfig(text: str, context: str, resolve: bounds.Resolve | None) -> port.Cluster:
    checked = resolve if kubeconfig_rules.is_pasted(text) else None
    return live.from_kubeconfig(text, context=context or None, resolve=checked)


def key_of(client: port.Cluster) -> int | None:
    """The key of the cluster whose client this is; None if no cluster uses it any more."""
    with _lock:
        return next((key for key, (_, kept) in _clients.items() if kept is client), None)


def install(key: int, client: port.Cluster) -> Callable[[], None]:
    """Installs a client (a fake, in tests) for a cluster and returns a function that removes it."""
    with _lock:
        _clients[key] = ("installed", client)
    return lambda: _clients.pop(key, None) and None
