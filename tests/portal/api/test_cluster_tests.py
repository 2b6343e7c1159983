"""The test of a cluster's stored access over REST: what it says, and who may."""

from datetime import datetime

import pytest

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.sources.models import Source
from tests.portal.api.conftest import Api, person, problem

pytestmark = pytest.mark.django_db


def test_the_rights_of_a_cluster_are_tested(east: Cluster, now: datetime) -> None:
    kube = fleet.connect(east)
    kube.forbidden = {port.Right("patch", "", "nodes")}
    admin = person("ann", "admin", now, cluster=east)
    answer = admin.post("clusters/east/test")
    assert answer.status_code == 200, answer.content
    access = answer.json()
    assert (access["unreachable"], access["unreachable_reason"], access["usable"], access["nodes"]) == (
        None,
        None,
        True,
        1,
    )
    features = {one["name"]: one for one in access["features"]}
    assert features["watch"].items() >= {"state": "granted", "need": "required", "missing": []}.items()
    assert features["mark"]["missing"] == [{"verb": "patch", "group": "", "resource": "nodes", "namespace": ""}]
    assert (features["mark"]["state"], features["mark"]["manifest"]) == ("missing", "deploy/rbac.yaml")
    assert b"hush" not in answer.content  # the kubeconfig
    assert Entry.objects.get(verb="cluster.tested").data["missing"] == ["mark"]


def test_logs_of_pods_are_asked_for_in_the_namespaces_of_the_sources(east: Cluster, now: datetime) -> None:
    admin = person("ann", "admin", now)

    def asked() -> list[str]:
        fleet.connect(east).forbidden = {port.Right("get", "", "pods/log", name) for name in ("", "a", "b", "default")}
        features = admin.post("clusters/east/test").json()["features"]
        [found] = [one["missing"] for one in features if one["name"] == "podLogs"]
        return [right["namespace"] for right in found]

    assert asked() == [""]
    for name, settings in (("one", {"pod_namespaces": ["b", "a"]}), ("two", {}), ("off", {"pod_namespaces": ["c"]})):
        more = {"settings": settings, "enabled": name != "off", "created_by": "user:ann", "created_at": now}
        Source.objects.create(name=name, kind="pod-logs", cluster=east, **more)
    assert asked() == ["a", "b", "default"]


def test_an_unusable_cluster_has_a_reason(west: Cluster, now: datetime) -> None:
    access = person("ann", "admin", now).post("clusters/west/test").json()
    assert (access["usable"], access["features"], access["nodes"]) == (False, [], None)
    assert access["unreachable_reason"]["code"].startswith("cluster_")
    assert access["unreachable"]


def test_only_an_admin_of_the_cluster_tests_it(east: Cluster, west: Cluster, operator: Api, now: datetime) -> None:
    problem(operator.post("clusters/east/test"), 403)
    problem(person("bo", "approver", now, cluster=east).post("clusters/east/test"), 403)
    problem(person("cy", "admin", now, cluster=west).post("clusters/east/test"), 404)
    [error] = problem(person("di", "admin", now).post("clusters/east/test", {"kubeconfig": "x"}), 400)["errors"]
    assert error["code"] == "unknown_field"
    assert not Entry.objects.filter(verb="cluster.tested").exists()
