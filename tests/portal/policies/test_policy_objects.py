"""Policies as objects of a cluster: read, bounded to it, after the portal's own, and told."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml

from kcover import actions
from kcover.actions import attributes
from kcover.jobs import checkpoint_query
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import connections, port
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.rescue.models import Rescue
from tests import proofs
from tests.codes import code_of
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
KSYUN, STANDBY, OWN, _ = port.POLICY_KINDS
RULE = {"priority": 10, "errorCode": ["62"], "actions": [{"name": "cordon"}]}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="")
    yield made
    made.uninstall()


def put(world: World, name: str = "gitops", kind: port.CustomKind = KSYUN, **rule: Any) -> None:
    world.kube.put_custom_object(kind, name, {"rules": [{**RULE, **rule}]})


def read(world: World) -> int:
    return services.read_policy_objects(world.cluster, now=world.now)


def reported(world: World, kind: port.CustomKind = KSYUN, name: str = "gitops") -> tuple[str, str]:
    [one] = [one for one in world.kube.custom_objects(kind) if one.name == name]
    [condition] = one.conditions
    assert (condition.type, condition.generation) == ("Accepted", one.generation)
    return condition.status, condition.reason


def test_an_object_is_a_policy_until_it_is_gone(world: World) -> None:
    put(world)
    assert read(world) == 1
    assert reported(world) == ("True", "Accepted")
    assert code_of(Revision.objects.get().because) == "policy_from_object"
    assert [one.policy for one in queries.candidates(world.cluster.pk)] == ["gitops"]
    writes = len(world.kube.writes)
    assert read(world) == 1
    assert (len(world.kube.writes), Policy.objects.get().revision) == (writes, 1)
    world.fault(62)
    world.work()
    assert Rescue.objects.get().rule == "gitops#1"
    put(world, errorCode=["79"])
    read(world)
    assert (queries.candidates()[0].rule.codes, reported(world)) == (("79",), ("True", "Accepted"))
    world.kube.remove_custom_object(KSYUN, "gitops")
    assert read(world) == 0
    assert queries.candidates() == ()
    row = Policy.objects.get()
    assert (row.archived_by, code_of(row.archived_because)) == ("cluster:c1", "policy_object_gone")


def test_an_object_applies_in_its_own_cluster_only(world: World) -> None:
    other = Cluster.objects.create(name="c2", created_at=world.now)
    uninstall = connections.install(other.pk, FakeCluster())
    put(world)
    read(world)
    assert services.read_policy_objects(other, now=world.now) == 0
    assert queries.candidates(other.pk) == ()
    assert len(queries.candidates(world.cluster.pk)) == len(queries.candidates()) == 1
    world.kube.put_custom_object(STANDBY, "spares", {"matches": [{"originNode": {"a": "b"}, "targetNode": {"a": "b"}}]})
    read(world)
    assert reported(world, STANDBY, "spares") == ("True", "Accepted")
    assert queries.standby_rules(other.pk) == ()
    assert len(queries.standby_rules(world.cluster.pk)) == 1
    uninstall()


def test_a_policy_from_an_object_is_read_only_and_can_be_exported(world: World) -> None:
    put(world)
    read(world)
    text = services.export()
    for act in (
        lambda: services.apply(text.replace("62", "63"), author="user:a", reason="", now=world.now, expected=1),
        lambda: services.delete("gitops", author="user:a", reason="x", now=world.now),
        lambda: services.rollback("gitops", 1, author="user:a", reason="x", now=world.now),
    ):
        with pytest.raises(services.Conflict):
            act()
    world.kube.remove_custom_object(KSYUN, "gitops")
    read(world)
    [own] = services.apply(text, author="user:a", reason="", now=world.now)
    assert (own.cluster, own.revision) == (None, 2)
    put(world)
    assert read(world) == 0
    assert reported(world) == ("False", "NameTaken")
    assert Policy.objects.get().revision == 2


def test_a_standby_policy_of_the_portal_takes_the_only_place(world: World) -> None:
    spec = {"matches": [{"originNode": {"a": "b"}, "targetNode": {"a": "b"}}]}
    world.kube.put_custom_object(STANDBY, "spares", spec)
    read(world)
    own = yaml.safe_dump(
        {"apiVersion": STANDBY.api_version, "kind": STANDBY.kind, "metadata": {"name": "own"}, "spec": spec}
    )
    services.apply(own, author="user:a", reason="", now=world.now)
    assert read(world) == 0
    assert reported(world, STANDBY, "spares") == ("False", "Invalid")
    assert [row.name for row in Policy.objects.filter(revision__gt=0)] == ["own"]
    services.delete("own", author="user:a", reason="", now=world.now, kind=queries.STANDBY)
    assert read(world) == 1
    assert reported(world, STANDBY, "spares") == ("True", "Accepted")


@pytest.mark.parametrize("expected", [None, 0])
def test_a_new_policy_of_the_portal_takes_the_name_of_an_objects(world: World, expected: int | None) -> None:
    """Whoever may create objects could keep a name from the portal. The object has it again once the policy is gone."""
    put(world)
    read(world)
    text = services.export().replace("62", "63")
    [own] = services.apply(text, author="user:a", reason="", now=world.now, expected=expected)
    assert (own.cluster, own.revision) == (None, 2)
    assert Entry.objects.filter(verb="policy.deleted").count() == 1
    assert read(world) == 0
    assert reported(world) == ("False", "NameTaken")
    services.delete("gitops", author="user:a", reason="back to GitOps", now=world.now)
    assert read(world) == 1
    assert reported(world) == ("True", "Accepted")


def test_the_name_of_a_deleted_policy_is_free(world: World) -> None:
    put(world)
    read(world)
    text = services.export()
    world.kube.remove_custom_object(KSYUN, "gitops")
    read(world)
    services.apply(text, author="user:a", reason="", now=world.now)
    services.delete("gitops", author="user:a", reason="back to GitOps", now=world.now)
    put(world)
    assert read(world) == 1
    assert reported(world) == ("True", "Accepted")
    row = Policy.objects.get()
    assert (row.cluster, row.revision, row.archived_at) == (world.cluster, 3, None)
    with pytest.raises(services.Conflict):
        services.rollback("gitops", 2, author="user:a", reason="x", now=world.now)


def test_a_name_whose_object_is_gone_is_free_in_another_cluster(world: World) -> None:
    other = Cluster.objects.create(name="c2", created_at=world.now)
    kube = FakeCluster()
    uninstall = connections.install(other.pk, kube)
    put(world)
    kube.put_custom_object(KSYUN, "gitops", {"rules": [RULE]})
    read(world)
    assert services.read_policy_objects(other, now=world.now) == 0
    world.kube.remove_custom_object(KSYUN, "gitops")
    read(world)
    assert services.read_policy_objects(other, now=world.now) == 1
    assert Policy.objects.get().cluster == other
    uninstall()


def publish(world: World, **rule: Any) -> None:
    """A policy of the portal's own."""
    document = {"apiVersion": "kcover.io/v1", "kind": "RescuePolicy", "metadata": {"name": "own"}}
    text = yaml.safe_dump({**document, "spec": {"rules": [{**RULE, **rule}]}})
    services.apply(text, author="user:a", reason="", now=world.now)


CHECKPOINT = {"checkpointWait": "10min", "checkpointQuery": checkpoint_query.EXAMPLE}
REBOOT = [{"name": "cordon"}, {"name": "drain", "attribute": {"waittime": "1min"}}, {"name": "reboot"}]


@pytest.mark.parametrize(
    "own",
    [
        {"mode": "approve"},
        {"approval": {"approvers": 2}},
        {"actions": [{"name": "notify"}]},
        {"match": {"minCount": 3, "within": "1h"}},
        {"priority": 0},
    ],
)
@pytest.mark.parametrize("first", ["own", "theirs"])
def test_the_portals_own_rule_comes_first(world: World, own: dict[str, Any], first: str) -> None:
    theirs = {"priority": 1_000, "actions": REBOOT, "errorCode": ["62", "79"]}
    if first == "theirs":
        put(world, "theirs", **theirs)
        assert read(world) == 1
        world.now += timedelta(minutes=1)
    publish(world, **own)
    put(world, "theirs", **theirs)
    assert read(world) == 1
    assert reported(world, name="theirs") == ("True", "Accepted")
    chosen, _ = queries.effective(kind="xid", code="62", labels={})
    assert (chosen.name if chosen else "") == ("" if "match" in own else "own#1")
    added, _ = queries.effective(kind="xid", code="79", labels={})
    assert added is not None
    assert added.name == "theirs#1"


def test_the_status_names_the_own_rules_that_come_first(world: World) -> None:
    publish(world)
    put(world, "theirs", errorCode=["62", "79"])
    read(world)
    [one] = world.kube.custom_objects(KSYUN)
    assert "own#1" in one.conditions[0].message
    writes = len(world.kube.writes)
    read(world)
    assert len(world.kube.writes) == writes


def test_no_action_of_an_object_calls_an_address_that_its_author_chose() -> None:
    for action in actions.in_policies().values():
        assert not (action.in_objects and attributes.url in action.attributes.values()), action.name


@pytest.mark.parametrize(
    "rule",
    [
        {"actions": [{"name": "webhook", "attribute": {"url": "https://10.0.0.1/x"}}]},
        {"actions": [{"name": "cordon"}, {"name": "drain"}, {"name": "powerCycle"}]},
        {"actions": [{"name": "cordon"}, {"name": "drain"}, {"name": "replace"}]},
        {"actions": [{"name": "offline", "attribute": {"url": "https://10.0.0.1/x"}}]},
        {"actions": [{"name": "cordon"}, {"name": "drain", "attribute": CHECKPOINT}]},
        {"errorCode": ["62", "13"]},
        {"match": {"codes": {"pod": ["FailsFirst"]}}},
        {"match": {"kinds": ["pod", "event"]}},
    ],
)
def test_only_the_portals_own_policies_call_others_cut_power_and_act_for_programs(
    world: World, rule: dict[str, Any]
) -> None:
    put(world, "theirs", OWN, **rule)
    put(world)
    assert read(world) == 1
    assert reported(world, OWN, "theirs") == ("False", "NotAllowed")
    publish(world, **rule)
    assert [one.policy for one in queries.candidates(world.cluster.pk)] == ["gitops", "own"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (KSYUN, {}),
        (KSYUN, {"rules": "x"}),
        (KSYUN, {"rules": [{**RULE, "mode": "enforce"}]}),  # not in KCE's dialect
        (OWN, {"rules": [{**RULE, "errorCode": [62]}]}),
        (OWN, {"rules": [{**RULE, "errorCode": ["62"] * 300_000}]}),
        (STANDBY, {"matches": [{}]}),
    ],
)
def test_an_invalid_object_gets_a_status_and_does_not_stop_the_others(
    world: World, kind: port.CustomKind, spec: dict[str, Any]
) -> None:
    world.kube.put_custom_object(kind, "wrong", spec)
    put(world)
    assert read(world) == 1
    assert reported(world, kind, "wrong") == ("False", "Invalid")
    assert reported(world) == ("True", "Accepted")


def test_two_objects_of_one_name_are_not_mixed(world: World) -> None:
    put(world)
    put(world, kind=OWN, errorCode=["79"])
    assert read(world) == 1
    assert sorted([reported(world), reported(world, OWN)]) == [("False", "NameTaken"), ("True", "Accepted")]


@pytest.mark.parametrize("setting", [{"mode": "shadow"}, {"mode": "paused"}, {"acted_on_by": "KCE"}])
def test_inv_48_in_shadow_mode_nothing_is_written(world: World, setting: dict[str, Any]) -> None:
    cluster_settings.set_cluster(world.cluster, setting, actor="test", reason="", now=world.now)
    put(world)
    assert read(world) == 1
    world.fault(62)
    world.work()
    assert world.kube.writes == []
    assert Incident.objects.get().decisions.get().mode != "enforce"


def test_a_silent_cluster_changes_no_policy(world: World) -> None:
    put(world)
    read(world)
    world.kube.fail("custom_objects", port.Unavailable("down"))
    with pytest.raises(port.KubeError):
        read(world)
    assert len(queries.candidates()) == 1
    put(world, errorCode=["79"])
    world.kube.fail("state_condition", port.Unavailable("down"))
    assert read(world) == 1
    assert told_later(world) == ("True", "Accepted")


def told_later(world: World) -> tuple[str, str]:
    read(world)
    return reported(world)


@pytest.mark.parametrize(("code", "rule"), [(62, "own#1"), (79, "theirs#1")])
def test_a_rescue_beside_objects_has_a_valid_proof(world: World, code: int, rule: str) -> None:
    """The verifier ranks the rules of objects last, as the portal does."""
    publish(world, priority=0, errorCode=["62"])
    put(world, "theirs", priority=1_000, errorCode=["62", "79"])
    read(world)
    world.fault(code)
    rescue = world.until("succeeded")
    assert rescue.rule == rule
    assert proofs.broken_claim(rescue) == ""
    # The name may get another owner later.
    world.kube.remove_custom_object(KSYUN, "theirs")
    read(world)
    text = yaml.safe_dump(
        {
            "apiVersion": "kcover.io/v1",
            "kind": "RescuePolicy",
            "metadata": {"name": "theirs"},
            "spec": {"rules": [{**RULE, "errorCode": ["63"]}]},
        }
    )
    services.apply(text, author="user:a", reason="", now=world.now)
    assert proofs.broken_claim(rescue) == ""
