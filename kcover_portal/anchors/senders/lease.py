"""Signed heads of a cluster's chain in an annotation of a Lease in that cluster, which always has the newest only."""

from kcover import reasons
from kcover_portal.anchors import signed_heads
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import signatures

NAME = "kcover-ledger"
ANNOTATION = "kcover.io/ledger-heads"


class LeaseError(reasons.ExplainedError):
    """The cluster did not answer, or refused."""


def read(cluster: Cluster, keys: dict[str, str]) -> SignedHeads | None:
    """Returns what the Lease holds; None if it does not exist or has no genuine heads. Raises LeaseError."""
    try:
        annotations = fleet.connect(cluster).lease_annotations(cluster.job_namespace, NAME)
    except port.KubeError as error:
        raise LeaseError(kube_reasons.of(error)) from error
    try:
        found = signed_heads.parse((annotations or {}).get(ANNOTATION, ""))
    except signed_heads.AnchorUnreadable:
        return None
    return found if found.is_genuine(keys) else None


def keep(cluster: Cluster, heads: SignedHeads) -> None:
    """Writes the cluster's own head into the Lease, under a signature of its own if ``heads`` has one.

    Raises LeaseError, and SigningKeyUnusable.
    """
    own = SignedHeads(at=heads.at, heads=tuple(head for head in heads.heads if head.cluster == cluster.name))
    line = (own.signed() if heads.signature is not None else own).line()
    draft = port.LeaseDraft(
        name=NAME, namespace=cluster.job_namespace, holder=port.COMPONENT, annotations={ANNOTATION: line}, at=heads.at
    )
    try:
        fleet.connect(cluster).keep_lease(draft)
    except port.KubeError as error:
        raise LeaseError(kube_reasons.of(error)) from error


def public_keys() -> dict[str, str]:
    """The keys whose signatures count; none if they cannot be read."""
    try:
        return signatures.public_keys()
    except signatures.SigningKeyUnusable:
        return {}
