"""Objects of custom resources: listed where they are installed, and told whether they were accepted."""

from datetime import UTC, datetime

import pytest

from kcover_portal.kube import port
from kcover_portal.kube.fake import FakeCluster

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
KIND = next(kind for kind in port.POLICY_KINDS if kind.group == "kcover.io" and kind.kind == "RescuePolicy")


@pytest.fixture
def simulated(http_rig):
    """A policy on the simulator."""
    name = http_rig.name("gitops")
    http_rig.create(
        {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": {"name": name},
            "spec": {"rules": [{"priority": 1}]},
        }
    )
    return http_rig.cluster, name


def find(cluster, name):
    return next((one for one in cluster.custom_objects(KIND) if one.name == name), None)


def accepted(one):
    return port.StatedCondition(
        type="Accepted", status="True", reason="Accepted", message="active", generation=one.generation
    )


def check(cluster, name):
    one = find(cluster, name)
    assert (one.kind, one.namespace, one.conditions) == (KIND, "", ())
    assert one.spec == {"rules": [{"priority": 1}]}
    cluster.state_condition(KIND, name, uid=one.uid, condition=accepted(one), at=AT)
    after = find(cluster, name)
    assert after.conditions == (accepted(one),)
    assert (after.spec, after.generation) == (one.spec, one.generation)
    with pytest.raises(port.Conflict):
        cluster.state_condition(KIND, name, uid="another", condition=accepted(one), at=AT)
    assert find(cluster, name).conditions == (accepted(one),)


@pytest.mark.simulator_only
def test_over_http(simulated):
    check(*simulated)


def test_in_memory():
    cluster = FakeCluster()
    cluster.put_custom_object(KIND, "gitops", {"rules": [{"priority": 1}]})
    check(cluster, "gitops")
    assert cluster.custom_objects(port.PREFLIGHT_REPORT) == []
