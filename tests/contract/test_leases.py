"""Leases: made once, and kept up to date."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kcover_portal.kube import port

PLACE = "kcover-jobs"


def test_a_lease_is_made_and_renewed(rig):
    at = datetime(2026, 11, 23, 8, tzinfo=UTC)
    draft = port.LeaseDraft(name=rig.name("heads"), namespace=PLACE, holder="h1", annotations={"a/b": "1"}, at=at)
    assert rig.cluster.lease_annotations(PLACE, draft.name) is None
    rig.cluster.keep_lease(draft)
    assert rig.cluster.lease_annotations(PLACE, draft.name) == {"a/b": "1"}
    made = rig.read("Lease", draft.name, namespace=PLACE)
    assert (made["spec"]["holderIdentity"], made["metadata"]["annotations"]) == ("h1", {"a/b": "1"})
    rig.cluster.keep_lease(replace(draft, holder="h2", annotations={"a/b": "2"}, at=at + timedelta(minutes=1)))
    kept = rig.read("Lease", draft.name, namespace=PLACE)
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    assert (kept["spec"]["holderIdentity"], kept["metadata"]["annotations"]["a/b"]) == ("h2", "2")
    assert kept["spec"]["renewTime"] > made["spec"]["renewTime"]
    assert kept["metadata"]["labels"] == {"app.kubernetes.io/managed-by": port.COMPONENT}


def test_a_lease_needs_its_namespace(rig):
    draft = port.LeaseDraft(
        name="x", namespace=rig.name("nowhere"), holder="h", annotations={}, at=datetime(2026, 11, 23, tzinfo=UTC)
    )
    with pytest.raises((port.NotFound, port.RefusedByServer)):  # refused where the portal has no right to look
        rig.cluster.keep_lease(draft)


def test_one_of_two_concurrent_claims_gets_the_lease(rig):
    at = datetime(2026, 11, 23, 8, tzinfo=UTC)
    first = port.LeaseClaim(
        name=rig.name("acts"),
        namespace="kcover-lease",
        holder="a",
        seconds=15,
        transitions=0,
        acquired=at,
        at=at,
        version="",
    )
    assert rig.cluster.lease_holder(first.namespace, first.name) is None
    rig.cluster.claim_lease(first)
    with pytest.raises(port.Conflict):  # both have seen that there is none
        rig.cluster.claim_lease(replace(first, holder="b"))
    seen = rig.cluster.lease_holder(first.namespace, first.name)
    assert (seen.holder, seen.seconds, seen.transitions) == ("a", 15, 0)
    taken = replace(first, holder="b", transitions=1, at=at + timedelta(seconds=20), version=seen.version)
    rig.cluster.claim_lease(taken)
    with pytest.raises(port.Conflict):  # both have seen that its time is over
        rig.cluster.claim_lease(replace(taken, holder="c"))
    now = rig.cluster.lease_holder(first.namespace, first.name)
    assert (now.holder, now.transitions) == ("b", 1)
    rig.cluster.claim_lease(replace(taken, holder="", acquired=None, version=now.version))
    left = rig.read("Lease", first.name, namespace=first.namespace)["spec"]
    assert (left["holderIdentity"], left["acquireTime"]) == ("", "2026-11-23T08:00:00.000000Z")
    assert rig.cluster.lease_holder(first.namespace, first.name).holder == ""
