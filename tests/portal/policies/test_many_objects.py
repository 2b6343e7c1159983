"""What many, large or unchanged policy objects cost: nothing that other clusters or their pauses would wait for."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover_portal.kube import bounds, port
from kcover_portal.policies import queries, services, tasks
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import policy_objects
from kcover_portal.runtime.services import leases
from kcover_portal.shared_reads import portal_checks
from tests.portal.policies.test_policy_objects import OWN, RULE, put, read, reported
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
UNCHANGED_STATEMENTS = 7


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="")
    yield made
    made.uninstall()


def put_rules(world: World, name: str, number: int) -> None:
    world.kube.put_custom_object(OWN, name, {"rules": [{**RULE, "priority": 10 + one} for one in range(number)]})


@pytest.mark.parametrize("number", [1, 3])
def test_what_did_not_change_is_not_read_again(world: World, number: int) -> None:
    for index in range(number):
        put(world, f"policy-{index}")
    assert read(world) == read(world) == number
    with CaptureQueriesContext(connection) as asked:
        assert read(world) == number
    assert len(asked) <= UNCHANGED_STATEMENTS
    assert not any("fleet_cluster" in one["sql"] and "FOR " in one["sql"] for one in asked)


def test_what_it_depends_on_is_noticed(world: World) -> None:
    put(world)
    put(world, "other", kind=OWN)
    assert read(world) == read(world) == 2
    services.apply(OWN_POLICY, author="user:a", reason="", now=world.now)  # its rule comes first now
    read(world)
    [one] = [one for one in world.kube.custom_objects(OWN) if one.name == "other"]
    assert "own#1" in one.conditions[0].message
    Policy.objects.filter(name="other").update(revision=0)  # as if a process had died in between
    assert read(world) == 2
    assert {one.policy for one in queries.candidates(world.cluster.pk)} == {"own", "gitops", "other"}


OWN_POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: own}
spec: {rules: [{priority: 90, errorCode: ["62"], actions: [{name: cordon}]}]}
"""


@pytest.mark.parametrize("bound", ["rules", "bytes"])
def test_the_rules_and_bytes_of_a_cluster_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    if bound == "rules":
        monkeypatch.setattr(policy_objects, "MAX_RULES_PER_CLUSTER", 5)
    else:
        monkeypatch.setattr(policy_objects, "MAX_BYTES_PER_CLUSTER", 1_500)
    put_rules(world, "a", 3)
    world.now += timedelta(seconds=1)
    put_rules(world, "b", 30)
    if bound == "rules":
        world.now += timedelta(seconds=1)
        put_rules(world, "c", 2)
    assert read(world) == (2 if bound == "rules" else 1)
    assert reported(world, OWN, "a") == ("True", "Accepted")
    assert reported(world, OWN, "b") == ("False", "TooMany")
    assert problem_codes(world) == ["policy_objects_beyond"]
    monkeypatch.undo()  # as if others made room
    put_rules(world, "d", 1)
    assert read(world) == (4 if bound == "rules" else 3)
    assert reported(world, OWN, "b") == ("True", "Accepted")
    assert problem_codes(world) == []


def test_a_list_beyond_its_bound_is_a_problem_of_the_portal(world: World) -> None:
    """Nobody but the log knew that no policy object was read any more."""
    put(world)
    read(world)
    world.kube.fail("custom_objects", bounds.TooLarge("a list has more than 1 bytes"))
    with pytest.raises(port.KubeError):
        read(world)
    assert problem_codes(world) == ["policy_objects_unread"]
    assert len(queries.candidates(world.cluster.pk)) == 1
    read(world)
    assert problem_codes(world) == []


def problem_codes(world: World) -> list[str]:
    found = portal_checks.problems(now=world.now)
    return [one.because.code for one in found if one.check.startswith(f"objects {world.cluster.name} ")]


def test_one_read_of_a_cluster_runs_at_a_time(world: World) -> None:
    put(world)
    name, now = f"policy objects {world.cluster.pk}", timezone.now()
    assert leases.acquire(name, holder="another worker", until=now + timedelta(minutes=1), now=now)
    tasks.read_objects_of(world.cluster.pk)
    assert world.kube.called("custom_objects") == []
    leases.release(name, holder="another worker", now=now)
    tasks.read_objects_of(world.cluster.pk)
    assert Policy.objects.get().name == "gitops"


@pytest.mark.parametrize("spec", [None, [], "x", {"rules": None}])
def test_a_spec_that_is_none_is_told_so(world: World, spec: Any) -> None:
    world.kube.put_custom_object(OWN, "wrong", {})
    world.kube.objects.edit(f"{OWN.kind}.{OWN.group}", "", "wrong", lambda found: found.update(spec=spec))
    assert read(world) == 0
    assert reported(world, OWN, "wrong") == ("False", "Invalid")


def test_the_keys_of_a_cluster_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of maps took ten seconds of a worker for each change, within all other bounds."""
    monkeypatch.setattr(policy_objects, "MAX_KEYS_PER_CLUSTER", 20)
    put(world, "first")
    world.now += timedelta(seconds=1)
    world.kube.put_custom_object(OWN, "keys", {"rules": [], "x": {f"k{number}": 1 for number in range(20)}})
    assert read(world) == 1
    assert reported(world, OWN, "keys") == ("False", "TooMany")


def test_a_spec_that_is_nested_too_deeply_is_empty() -> None:
    one = port.CustomObject(
        kind=OWN, name="deep", uid="u", raw_spec=b'{"rules":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    )
    assert one.spec == {}
