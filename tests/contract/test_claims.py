"""PersistentVolumeClaims: created once, read, deleted."""

import pytest

from kcover_portal.kube import port

PLACE = "kcover-jobs"
KIND = "PersistentVolumeClaim"


@pytest.fixture
def spec(rig):
    return port.ClaimSpec(name=rig.name("check"), namespace=PLACE, storage_class="none-such", labels={"a": "b"})


def test_a_claim_is_made_once_and_is_pending_until_storage_is_found(rig, spec):
    assert rig.cluster.claim_state(PLACE, spec.name) == port.ClaimState(exists=False)
    assert rig.cluster.ensure_claim(spec) == port.ClaimState(exists=True, phase="Pending")
    made = rig.read(KIND, spec.name, namespace=PLACE)
    assert rig.cluster.ensure_claim(spec).exists
    assert rig.read(KIND, spec.name, namespace=PLACE)["metadata"]["uid"] == made["metadata"]["uid"]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": port.COMPONENT, "a": "b"}
    assert (made["spec"]["accessModes"], made["spec"]["storageClassName"]) == (["ReadWriteMany"], "none-such")
    assert made["spec"]["resources"]["requests"] == {"storage": "100Mi"}
    assert not rig.cluster.claim_state(PLACE, spec.name).bound
    rig.merge(KIND, spec.name, {"status": {"phase": "Bound"}}, namespace=PLACE, status=True)
    assert rig.cluster.claim_state(PLACE, spec.name).bound


def test_a_claim_is_deleted_and_a_second_deletion_is_harmless(rig, spec):
    rig.cluster.ensure_claim(spec)
    rig.cluster.delete_claim(PLACE, spec.name)
    assert not rig.cluster.claim_state(PLACE, spec.name).bound
    rig.cluster.delete_claim(PLACE, spec.name)
    assert rig.cluster.claim_state(PLACE, spec.name) == port.ClaimState(exists=False)


def test_a_claim_needs_its_namespace(rig, spec):
    with pytest.raises((port.NotFound, port.RefusedByServer)):  # refused where the portal has no right to look
        rig.cluster.ensure_claim(port.ClaimSpec(name="x", namespace=rig.name("nowhere")))
