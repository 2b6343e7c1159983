"""A machine is replaced at most once without a person's word, and only if the object is proved to be its own."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import queries as incidents
from kcover_portal.kube import connections, port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.replacing import PROVIDER, Fleet
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["karpenter", "clusterapi"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    made = Fleet(kind=request.param)
    yield made
    made.uninstall()


@pytest.fixture
def claims() -> Iterator[Fleet]:
    made = Fleet()
    yield made
    made.uninstall()


@pytest.fixture
def capi() -> Iterator[Fleet]:
    made = Fleet(kind="clusterapi")
    yield made
    made.uninstall()


def deletions(world: World) -> int:
    return len(world.kube.called("delete_object"))


def test_a_machine_is_replaced_once_and_the_rescue_ends_with_its_node(fleet: Fleet) -> None:
    fleet.until_asked()
    assert (fleet.objects(), deletions(fleet)) == ({"claim-1": True}, 1)
    assert fleet.kube.get_node(NODE).labels["kcover.io/state"] == "repair"
    for _ in range(5):
        fleet.pass_time(30)
    assert (deletions(fleet), code_of(fleet.step("replace").because)) == (1, "replacement_requested")
    fleet.terminate()
    fleet.kube.add_node("gpu-new", gpus=8, provider_id="aws:///us-east-1a/i-9")
    fleet.pass_time(30)
    rescue = fleet.rescue()
    assert (rescue.state, rescue.outcome, rescue.marks, rescue.needs_human) == ("cancelled", "replaced", {}, False)
    assert "machine_replaced" in codes_of(rescue.because)
    assert not incidents.open_on(rescue.node).exists()
    wanted = Entry.objects.get(verb="replace.begun").data["wanted"]
    assert (wanted["provider_id"], wanted["driver"], wanted["kind"]) == (PROVIDER, "owner", fleet.kind.kind)
    assert proofs.broken_claim(rescue) == ""


def test_the_new_machine_may_have_the_old_name(claims: Fleet) -> None:
    claims.until_asked()
    claims.terminate()
    claims.kube.add_node(NODE, gpus=8, system_uuid="4c4c4544-0042-3010-8054-b4c04f564d31", provider_id="aws:///b/i-2")
    claims.pass_time(30)
    assert (claims.rescue().state, claims.rescue().outcome) == ("cancelled", "replaced")
    assert not claims.kube.get_node(NODE).unschedulable
    assert (deletions(claims), incidents.open_on(claims.node()).exists()) == (1, False)


def test_faults_of_the_new_machine_stay_open(claims: Fleet) -> None:
    claims.until_asked()
    claims.terminate()
    claims.kube.add_node(NODE, gpus=8, system_uuid="4c4c4544-0042-3010-8054-b4c04f564d31", provider_id="aws:///b/i-2")
    claims.fault(74)  # before the watch has shown the new machine
    claims.work()
    claims.pass_time(30)
    assert next(row.outcome for row in claims.node().rescues.order_by("pk")) == "replaced"
    assert list(incidents.open_on(claims.node()).values_list("code", flat=True)) == ["74"]


@pytest.mark.parametrize(
    ("kind", "differs", "code"),
    [
        ("karpenter", {"provider": "aws:///us-east-1a/i-9"}, "machine_objects_found"),
        ("karpenter", {"node": "gpu-2"}, "machine_object_of_another"),
        ("clusterapi", {"node": "gpu-2"}, "machine_object_of_another"),
        ("clusterapi", {"uuid": "4c4c4544-0042-3010-8054-b4c04f564d31"}, "machine_object_uuid"),
        ("clusterapi", {"uuid": ""}, "machine_object_uuid"),
        ("clusterapi", {"owner": ""}, "machine_object_without_owner"),
    ],
)
def test_inv_53_no_other_machine_is_ever_deleted(kind: str, differs: dict[str, str], code: str) -> None:
    fleet = Fleet(kind=kind)
    fleet.kube.remove_custom_object(fleet.kind, "claim-1", namespace="" if kind == "karpenter" else "capi")
    fleet.put(**differs)
    fleet.until_asked()
    assert (fleet.rescue().state, code_of(fleet.rescue().because)) == ("held", code)
    assert deletions(fleet) == 0
    fleet.uninstall()


def test_inv_53_two_objects_or_none_of_one_machine_are_held_for_a_person(claims: Fleet) -> None:
    claims.put("claim-2")
    claims.until_asked()
    assert code_of(claims.rescue().because) == "machine_objects_found"
    for name in ("claim-1", "claim-2"):
        claims.kube.remove_custom_object(claims.kind, name)
    services.retry(claims.rescue(), actor="user:ann", reason="look again", now=claims.now)
    claims.work()
    assert (deletions(claims), code_of(claims.rescue().because)) == (0, "machine_objects_found")


def test_inv_53_an_object_that_took_the_name_meanwhile_stays(capi: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    real = capi.kube.delete_object

    def late(kind: port.CustomKind, namespace: str, name: str, *, uid: str) -> None:
        monkeypatch.undo()
        capi.kube.remove_custom_object(kind, name, namespace=namespace)
        capi.put()
        real(kind, namespace, name, uid=uid)

    monkeypatch.setattr(capi.kube, "delete_object", late)
    capi.until_asked()
    assert (capi.objects(), code_of(capi.rescue().because)) == ({"claim-1": False}, "replacement_refused")


@pytest.mark.parametrize("after", [False, True])
def test_inv_53_a_worker_that_dies_in_the_request_leaves_at_most_one(claims: Fleet, *, after: bool) -> None:
    worker_kills.kill_at(claims.kube, "delete_object", call=1, after=after)
    claims.fault(62)
    assert any(worker_kills.work(claims) for _ in range(3))
    for _ in range(20):
        claims.pass_time(10)
    if after:
        assert (claims.objects(), code_of(claims.step("replace").because)) == (
            {"claim-1": True},
            "replacement_requested",
        )
    else:  # nobody knows whether it arrived, so it is not repeated without a person's word
        assert (claims.rescue().state, code_of(claims.rescue().because)) == ("held", "replacement_unclear")
        services.retry(claims.rescue(), actor="user:ann", reason="it did not", now=claims.now)
        claims.work()
    assert claims.objects() == {"claim-1": True}


@pytest.mark.parametrize(
    ("error", "after", "calls"),
    [
        (port.Unavailable("429", retry_after=1.0), False, 2),
        (port.Unavailable("504", ambiguous=True), True, 1),
        (port.Unavailable("cut", ambiguous=True), False, 1),
    ],
)
def test_inv_53_only_a_request_that_surely_did_not_arrive_is_repeated(
    claims: Fleet, error: port.KubeError, after: bool, calls: int
) -> None:
    claims.kube.fail("delete_object", error, after=after)
    claims.until_asked()
    for _ in range(20):
        claims.pass_time(10)
    assert deletions(claims) == calls
    assert claims.objects() == {"claim-1": after or calls == 2}


def test_inv_53_a_refusal_of_a_completed_request_is_not_repeated(fleet: Fleet) -> None:
    fleet.kube.fail("delete_object", port.Conflict("409"), after=True)
    fleet.until_asked()
    fleet.terminate()
    fleet.pass_time(30)
    assert (fleet.rescue().outcome, deletions(fleet)) == ("replaced", 1)
    assert proofs.broken_claim(fleet.rescue()) == ""


@pytest.mark.parametrize("goes", [True, False])
def test_inv_53_a_node_that_is_gone_at_the_retry_counts_as_replaced_with_its_object(fleet: Fleet, goes: bool) -> None:
    fleet.kube.fail("delete_object", port.Unavailable("429", retry_after=60.0), after=goes)
    fleet.fault(62)
    while not deletions(fleet):
        fleet.work()
        fleet.pass_time()
    if goes:
        fleet.terminate()
    else:
        fleet.kube.delete_node(NODE)
    for _ in range(5):
        fleet.pass_time(30)
    found = fleet.rescue()
    assert (found.state, found.outcome) == (("cancelled", "replaced") if goes else ("failed", "failed"))
    assert deletions(fleet) == 1
    assert proofs.broken_claim(found) == ""


def test_a_node_that_was_deleted_while_its_machine_stays_is_not_replaced(claims: Fleet) -> None:
    claims.kube.fail("delete_object", port.Unavailable("cut", ambiguous=True))
    claims.until_asked()
    claims.kube.delete_node(NODE)
    for _ in range(10):
        claims.pass_time(10)
    assert (claims.rescue().state, code_of(claims.rescue().because)) == ("held", "replacement_unclear")
    assert incidents.open_on(claims.rescue().node).exists()


def test_guards_hold_it_back_and_a_driver_is_needed(claims: Fleet) -> None:
    cluster_settings.set_guards(
        claims.cluster, {"floor": {"percent": 100}}, actor="user:ann", reason="", now=claims.now
    )
    claims.until_asked()
    assert deletions(claims) == 0
    cluster_settings.set_guards(
        claims.cluster, {"floor": {"percent": None}}, actor="user:ann", reason="", now=claims.now
    )
    claims.cluster.drivers.all().delete()
    for _ in range(10):
        claims.pass_time(10)
    assert (claims.rescue().state, code_of(claims.rescue().because)) == ("held", "machine_replacer_missing")
    assert deletions(claims) == 0


def test_a_node_that_stays_is_held_for_a_person(capi: Fleet) -> None:
    capi.until_asked()
    for _ in range(30):
        capi.pass_time(200)
    assert (capi.rescue().state, code_of(capi.rescue().because)) == ("held", "replacement_timeout")


def test_machines_may_be_in_another_cluster_under_an_older_version() -> None:
    kind = replace(port.MACHINE, version="v1beta1")
    fleet = Fleet(kind="clusterapi", version="v1beta1")
    fleet.until_asked()
    assert (kind.api_version, fleet.objects()) == ("cluster.x-k8s.io/v1beta1", {"claim-1": True})
    fleet.uninstall()


@pytest.mark.parametrize(
    ("change", "code"), [({"mode": "shadow"}, "shadow_no_writes"), ({"acted_on_by": "capi"}, "shadow_no_writes")]
)
def test_the_mode_of_the_management_cluster_holds(change: dict[str, str], code: str, now: datetime) -> None:
    other = Cluster.objects.create(name="management", created_at=now, **change)
    made = Fleet(kind="clusterapi", cluster="management")
    uninstall = connections.install(other.pk, made.kube)
    try:
        made.fault(62)
        for _ in range(12):
            made.work()
            made.pass_time(5)
        assert (deletions(made), code in codes_of(made.rescue().because)) == (0, True)
        Cluster.objects.filter(pk=other.pk).update(mode="enforce", acted_on_by="")
        for _ in range(12):
            made.pass_time(30)
            made.work()
        assert deletions(made) == 1
    finally:
        uninstall()
        made.uninstall()
