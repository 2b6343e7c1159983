"""Validations on real check runs: what lets a node pass, what does not prove it, and each verdict given once."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.faults.fault import Check
from kcover.validation import profiles
from kcover_portal.checks import queries, services as check_runs, tasks
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.checks.services import validation_profiles, validations
from kcover_portal.fleet.models import Agent, CheckResult, Command, Node
from kcover_portal.fleet.services import node_selection
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError, FieldErrors
from kcover_portal.runtime.services import retention
from tests.codes import code_of
from tests.portal.checks.test_check_runs import answer
from tests.portal.fleet.real_agent import RealAgent
from tests.portal.rescue import agents
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
ADMIN: dict[str, Any] = {"actor": "user:ada", "reason": "gen 5"}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=2)
    for number in (1, 2):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def begin(world: World, *names: str, profile: str = "light") -> Validation:
    nodes = node_selection.nodes(world.cluster, hosts=names)
    row = validations.begin(world.cluster, nodes, profile=profile, reason="new board", actor="user:ann", now=world.now)
    if row.run_id:
        check_runs.advance(row.run_id, now=world.now)
    return row


def passes(world: World, node: str, **statuses: str) -> None:
    """The agent answers with a pass of each check, except for the given statuses."""
    [command] = [one for one in agents.commands("run_check", node) if one.state == "offered"]
    answer(world, node, *({"name": name, "status": statuses.get(name, "pass")} for name in command.args["checks"]))


def conclude(world: World, row: Validation) -> Validation:
    assert row.run_id is not None
    check_runs.advance(row.run_id, now=world.now)
    validations.conclude(row.run_id, now=world.now)
    row.refresh_from_db()
    return row


def verdicts(row: Validation) -> dict[str, tuple[str, str, list[str]]]:
    return {one.node.name: (one.state, one.proof, [code_of(why) for why in one.because]) for one in row.nodes.all()}


def entries(row: Validation) -> list[Entry]:
    return list(Entry.objects.filter(subject=f"validation {row.pk}").order_by("pk"))


def test_nodes_pass_by_the_results_of_their_checks(world: World) -> None:
    row = begin(world, "gpu-1", "gpu-2")
    assert (row.state, row.run and row.run.checks) == ("running", ["remapped", "gpupower", "pciebw", "dcgm"])
    passes(world, "gpu-1")
    assert conclude(world, row).state == "running", "a node has not answered"
    passes(world, "gpu-2", gpupower="warn")
    assert conclude(world, row).state == "passed"
    assert verdicts(row) == {f"gpu-{n}": ("passed", "hardware", []) for n in (1, 2)}
    assert row.finished_at == world.now
    conclude(world, row)
    requested, finished = entries(row)
    assert (requested.verb, requested.actor, requested.data["count"]) == ("validation.requested", "user:ann", 2)
    assert requested.data["document"] == profiles.DEFAULTS["light"].to_json()
    assert (finished.verb, finished.data["state"]) == ("validation.finished", "passed")


def test_a_real_agent_is_validated(world: World) -> None:
    row = begin(world, "gpu-1", "gpu-2")
    good = [Check(name=name, device="GPU-0", status="pass") for name in profiles.DEFAULTS["light"].names]
    RealAgent(world, "gpu-1", *good).obeys()
    RealAgent(world, "gpu-2", *good[1:]).obeys()  # it does not know the first check
    conclude(world, row)
    assert {name: found[0] for name, found in verdicts(row).items()} == {"gpu-1": "passed", "gpu-2": "error"}


def test_one_failure_fails_the_validation_but_not_the_other_node(world: World) -> None:
    row = begin(world, "gpu-1", "gpu-2")
    passes(world, "gpu-1", pciebw="fail")
    passes(world, "gpu-2")
    assert conclude(world, row).state == "failed"
    assert verdicts(row) == {
        "gpu-1": ("failed", "hardware", ["validation_failures"]),
        "gpu-2": ("passed", "hardware", []),
    }
    assert entries(row)[1].data["not_passed"] == {"gpu-1": "failed"}


def test_busy_gpus_are_no_proof(world: World) -> None:
    world.kube.add_pod("default", "train-0", node="gpu-1", gpus=8)
    row = begin(world, "gpu-1", profile="full")
    passes(world, "gpu-1")
    assert conclude(world, row).state == "error"
    assert verdicts(row) == {"gpu-1": ("error", "hardware", ["validation_skipped"])}
    [results] = queries.validation_results(row).values()
    assert {one["name"]: one["proof"] for one in results} == {
        **dict.fromkeys(("remapped", "gpupower", "pciebw"), "hardware"),
        **dict.fromkeys(("gpumem", "dcgm", "nccl"), "none"),
    }
    assert entries(row)[0].node == "gpu-1", "the history of the only node shows it"


def test_a_check_that_is_not_required_may_be_skipped(world: World) -> None:
    row = begin(world, "gpu-1", "gpu-2")
    passes(world, "gpu-1", remapped="skipped")
    passes(world, "gpu-2", dcgm="skipped")
    assert conclude(world, row).state == "error"
    assert {name: found[0] for name, found in verdicts(row).items()} == {"gpu-1": "passed", "gpu-2": "error"}


def test_a_node_without_any_hardware_behind_it_has_no_proof(world: World) -> None:
    row = begin(world, "gpu-1")
    passes(world, "gpu-1", **dict.fromkeys(profiles.DEFAULTS["light"].names, "skipped"))
    assert conclude(world, row).state == "error"
    assert verdicts(row) == {"gpu-1": ("error", "none", ["validation_skipped"])}


def test_silence_is_no_verdict_on_the_hardware(world: World) -> None:
    Agent.objects.filter(node__name="gpu-1").update(seen_at=world.now - timedelta(hours=1))
    row = begin(world, "gpu-1", "gpu-2")
    world.now += timedelta(hours=1)
    assert conclude(world, row).state == "error"
    assert verdicts(row) == {
        "gpu-1": ("error", "none", ["agent_not_reporting"]),
        "gpu-2": ("error", "none", ["no_answer_in_time"]),
    }


def test_probes_count_as_they_are_at_the_verdict(world: World) -> None:
    for node, status in (("gpu-1", "fail"), ("gpu-2", "pass")):
        world.report(node=node, checks=(Check(name="nvlink", device="GPU-0", status=status),))
    row = begin(world, "gpu-1", "gpu-2")
    passes(world, "gpu-1")
    passes(world, "gpu-2")
    assert conclude(world, row).state == "failed"
    assert {name: found[0] for name, found in verdicts(row).items()} == {"gpu-1": "failed", "gpu-2": "passed"}
    assert row.nodes.get(node__name="gpu-2").probes[0]["name"] == "nvlink"


@pytest.mark.parametrize(
    ("boot", "age", "found"),
    [
        ("", timedelta(0), ("failed", ["validation_failures"])),
        ("after", timedelta(0), ("error", ["validation_errors"])),  # the probe has not looked since the boot
        ("", timedelta(hours=4), ("passed", [])),  # the device is no longer reported
    ],
)
def test_an_old_result_of_a_probe_is_not_todays(
    world: World, boot: str, age: timedelta, found: tuple[str, list[str]]
) -> None:
    world.report(checks=(Check(name="ib_port", device="mlx5_0/1", status="fail"),))
    CheckResult.objects.update(seen_at=world.now - age)
    world.now += timedelta(minutes=1)
    world.report(boot_id=boot)
    row = begin(world, "gpu-1")
    passes(world, "gpu-1")
    conclude(world, row)
    assert (row.state, verdicts(row)["gpu-1"][2]) == found


def test_another_machine_of_the_same_name_is_not_validated(world: World) -> None:
    row = begin(world, "gpu-1")
    passes(world, "gpu-1")
    check_runs.advance(row.run_id, now=world.now)
    Node.objects.filter(name="gpu-1").update(uid="another")
    assert conclude(world, row).state == "error"
    assert verdicts(row)["gpu-1"] == ("error", "none", ["validation_other_machine"])


def test_a_cancelled_validation_withdraws_its_checks(world: World) -> None:
    row = begin(world, "gpu-1", "gpu-2")
    validations.cancel(row, actor="user:bo", reason="wrong node", now=world.now)
    assert conclude(world, row).state == "cancelled"
    assert {state for state, *_ in verdicts(row).values()} == {"cancelled"}
    assert set(Command.objects.values_list("state", flat=True)) == {"expired"}
    with pytest.raises(validations.ValidationRefused) as refused:
        validations.cancel(row, actor="user:bo", reason="", now=world.now)
    assert refused.value.reason.code == "validation_ended"
    assert [(one.verb, one.actor) for one in entries(row)][1:] == [("validation.cancelled", "user:bo")]


def test_a_stopped_run_cancels_its_validation(world: World) -> None:
    row = begin(world, "gpu-1")
    assert row.run is not None
    check_runs.stop(row.run, actor="user:bo", reason="enough", now=world.now)
    assert conclude(world, row).state == "cancelled"
    assert entries(row)[1].data["because"]["code"] == "validation_run_stopped"


def test_a_validation_waits_while_the_cluster_has_too_many_runs(world: World, monkeypatch: Any) -> None:
    for _ in range(check_runs.MAX_RUNS):
        other = CheckRun.objects.create(cluster=world.cluster, requested_by="t", requested_at=world.now)
    row = begin(world, "gpu-1")
    assert (row.state, row.run_id) == ("waiting", None)
    check_runs.stop(other, actor="user:bo", reason="", now=world.now)
    rung: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tasks.doorbell, "ring", lambda *message: rung.append(message))
    tasks.advance_runs()
    assert ("checks.start_validation", row.pk) in rung
    validations.start(row.pk, now=world.now)
    validations.start(row.pk, now=world.now)
    row.refresh_from_db()
    assert (row.state, CheckRun.objects.filter(validation=row).count()) == ("running", 1)


def test_the_end_of_a_run_rings_and_is_found_without_a_ring(world: World, monkeypatch: Any) -> None:
    row = begin(world, "gpu-1")
    passes(world, "gpu-1")
    rung: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tasks.doorbell, "ring", lambda *message: rung.append(message))
    check_runs.advance(row.run_id, now=world.now)
    assert rung == [("checks.conclude_validation", row.run_id)]
    tasks.advance_runs()
    assert rung[1:] == [("checks.conclude_validation", row.run_id)]
    tasks.conclude_validation(row.run_id)
    assert not queries.due_validations().exists()


def test_open_validations_and_nodes_are_bounded(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(validations, "MAX_OPEN", 1)
    monkeypatch.setattr(validations, "MAX_NODES", 1)
    begin(world, "gpu-1")
    with pytest.raises(validations.ValidationRefused) as full:
        begin(world, "gpu-2")
    assert full.value.reason.code == "validations_full"
    with pytest.raises(FieldError) as many:
        begin(world, "gpu-1", "gpu-2")
    assert (many.value.field, many.value.reason.code) == ("nodes", "validation_node_count")
    with pytest.raises(FieldError) as unknown:
        begin(world, "gpu-1", profile="deep")
    assert (unknown.value.field, unknown.value.reason.code) == ("profile", "profile_unknown")


def test_ended_validations_are_forgotten(world: World) -> None:
    row = begin(world, "gpu-1")
    validations.prune(now=world.now + timedelta(days=400))
    validations.cancel(row, actor="user:bo", reason="", now=world.now)
    validations.prune(now=world.now + retention.time(Validation))
    assert Validation.objects.exists()
    validations.prune(now=world.now + retention.time(Validation) + timedelta(seconds=1))
    assert not Validation.objects.exists()


# ------------------------------------------------------------------------------------------------------------- profiles


def test_a_changed_profile_reaches_the_agents_and_leaves_open_validations_alone(world: World) -> None:
    before = begin(world, "gpu-1")
    document = {"checks": [{"check": "dcgm", "level": 3}, {"check": "pciebw", "threshold": 20}]}
    validation_profiles.change("light", document, **ADMIN, now=world.now)
    after = begin(world, "gpu-2")
    asked = {command.node.name: command.args for command in Command.objects.select_related("node")}
    assert asked["gpu-1"] == {"checks": ["remapped", "gpupower", "pciebw", "dcgm"], "r": 1}
    assert asked["gpu-2"] == {"checks": ["pciebw", "dcgm"], "r": 3, "threshold": 20}
    assert before.document != after.document
    entry = Entry.objects.get(verb="profile.changed")
    assert (entry.subject, entry.actor, entry.data["reason"]) == ("validation profile light", "user:ada", "gen 5")
    assert entry.data["document"]["after"] == validation_profiles.named("light").to_json()


def test_the_default_comes_back_and_no_change_is_no_entry(world: World) -> None:
    default = profiles.DEFAULTS["full"]
    validation_profiles.change("full", default.to_json(), **ADMIN, now=world.now)
    assert not Entry.objects.filter(verb="profile.changed").exists()
    validation_profiles.change("full", {"checks": [{"check": "gpumem"}]}, **ADMIN, now=world.now)
    assert validation_profiles.in_force()["full"].names == ("gpumem",)
    validation_profiles.change("full", None, **ADMIN, now=world.now)
    assert validation_profiles.in_force() == profiles.DEFAULTS
    assert Entry.objects.filter(verb="profile.changed").count() == 2


def test_a_bad_profile_is_refused_by_its_path(world: World) -> None:
    with pytest.raises(FieldErrors) as refused:
        validation_profiles.change("light", {"checks": [{"check": "dcgm", "level": 9}]}, **ADMIN, now=world.now)
    assert [(one.field, one.reason.code) for one in refused.value.errors] == [("checks/0/level", "number_out_of_range")]


def test_the_last_validation_of_a_node_may_be_open(world: World) -> None:
    row = begin(world, "gpu-1")
    passes(world, "gpu-1")
    world.now += timedelta(minutes=1)
    conclude(world, row)
    later = begin(world, "gpu-1")
    last = queries.last_validation(world.node("gpu-1"))
    assert last is not None
    assert last.validation == later
