"""Keeps signed heads in a Lease of each cluster for which an admin asks for it, where the mode allows writes.

A Lease has the newest heads only. They are therefore compared with the database before they are replaced.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from kcover import reasons
from kcover_portal.anchors.senders import lease
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import signatures

MAX_CONCURRENT_CLUSTERS = 4  # clusters that are called at once


def clusters() -> list[Cluster]:
    """The clusters in which a Lease is kept now: none in the modes shadow and paused."""
    asked = [cluster for cluster in fleet.clusters() if cluster.ledger_lease]
    return [cluster for cluster in asked if fleet.mode_now(cluster)[0] not in fleet.MODES_WITHOUT_WRITES]


def publish(
    chosen: Collection[Cluster], heads: SignedHeads, contradicts: Callable[[SignedHeads], bool]
) -> dict[str, reasons.Reason | None]:
    """Compares and replaces the heads in the Leases. Returns the problem of each place, None if it has the new heads.

    ``contradicts``: whether the database lacks what an anchor says. Then its Lease stays as it is: it is evidence.
    """
    keys = lease.public_keys()
    with ThreadPoolExecutor(MAX_CONCURRENT_CLUSTERS) as calls:
        found = list(calls.map(lambda cluster: _try(lambda: lease.read(cluster, keys)), chosen))
        kept = [
            cluster
            for cluster, anchor in zip(chosen, found, strict=True)
            if not isinstance(anchor, reasons.Reason) and (anchor is None or not contradicts(anchor))
        ]
        written = list(calls.map(lambda cluster: _try(lambda: lease.keep(cluster, heads)), kept))
    problems = {
        _place(cluster): one for cluster, one in zip(chosen, found, strict=True) if isinstance(one, reasons.Reason)
    }
    return problems | {
        _place(cluster): one for cluster, one in zip(kept, written, strict=True) if not isinstance(one, SignedHeads)
    }


def _try(call: Callable[[], SignedHeads | None]) -> SignedHeads | reasons.Reason | None:
    try:
        return call()
    except (lease.LeaseError, signatures.SigningKeyUnusable) as error:
        return error.reason


def _place(cluster: Cluster) -> str:
    return f"lease {cluster.name}"
