"""Until when a step waits, what happens then, and how far a rescue is."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover.checks import autopilot
from kcover.validation import profiles
from kcover_portal.accounts.queries import Scope
from kcover_portal.checks.models import CheckRun, CheckTarget, Validation
from kcover_portal.checks.services import node_checks
from kcover_portal.console.reads import guard_holds, overview, rescues, step_facts, waits
from kcover_portal.console.reads.wait import Wait
from kcover_portal.fleet.models import Command, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.rescue import agents
from tests.portal.rescue.test_actions_validate import POLICY, until_validating
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


def wait_of(rescue: Rescue) -> Wait | None:
    steps = list(rescue.steps.all())
    return waits.of(rescue, steps, waits.ends_of_validations([steps]))


def test_a_reboot_shows_how_long_it_waits_and_that_a_person_decides_then(person, world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    rescue = world.rescue()
    step = rescue.steps.get(name="reboot")
    asked = step.typed_progress.requested_at
    found = wait_of(rescue)
    assert found == Wait(asked + timedelta(seconds=world.cluster.ready_within), waits.THEN_A_PERSON)
    client = person("viewer")
    for page in ("/", f"/rescues/{rescue.pk}/", "/nodes/c1/gpu-1/"):
        assert str(waits.THEN_A_PERSON) in client.get(page).content.decode(), page


def drain_step(**more: object) -> Step:
    start = {"index": 1, "name": "drain", "state": "waiting", "args": {"seconds": 600, "on_timeout": "hold"}}
    return Step(**{**start, **more})


@pytest.mark.parametrize(
    ("choice", "progress", "seconds", "then"),
    [
        ("hold", {}, 600, waits.THEN_A_PERSON),
        ("proceed", {}, 600, waits.THEN_OF_DRAIN["proceed"]),
        ("force", {"held_seconds": 30.0}, 630, waits.THEN_OF_DRAIN["force"]),
    ],
)
def test_a_drain_shows_its_deadline_and_what_follows(
    world: World, choice: str, progress: dict[str, object], seconds: int, then: object
) -> None:
    rescue = Rescue(cluster=world.cluster, state="waiting")
    step = drain_step(started_at=world.now, args={"seconds": 600, "on_timeout": choice}, progress=progress)
    assert waits.of(rescue, [step], {}) == Wait(world.now + timedelta(seconds=seconds), then)


def test_a_held_wait_has_no_end(world: World) -> None:
    held = drain_step(started_at=world.now, progress={"held_since": world.now.isoformat()})
    assert waits.of(Rescue(cluster=world.cluster, state="waiting"), [held], {}) is None
    blocked = Rescue(cluster=world.cluster, state="waiting", hold=Rescue.Hold.GUARD)
    assert waits.of(blocked, [drain_step(started_at=world.now)], {}) is None


def test_looks_are_told_apart_from_calls(person, world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    reboot = Step.objects.get(rescue=world.rescue(), name="reboot")
    before = reboot.attempts
    for _ in range(3):
        world.pass_time(60)
        world.work()
    reboot.refresh_from_db()
    assert (reboot.state, reboot.attempts > before) == ("waiting", True)
    shown = person("viewer").get(f"/rescues/{reboot.rescue_id}/").context["steps"]
    looks = {view.step.name: step_facts.looks(view.step, calls=len(view.calls)) for view in shown}
    [(_, checked), (_, called)] = looks["reboot"]
    assert (checked, called) == (f"{reboot.attempts} times", "2 times")  # the state label and the command, however long
    assert set(looks["reboot"]) <= set(next(view.facts for view in shown if view.step.name == "reboot"))
    assert looks["cordon"] == []


def test_a_denied_plan_is_not_done(world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    rescue = world.rescue()
    services.cancel(rescue, actor="user:ann", reason="r", now=world.now)
    done, total = rescues.number_of(list(world.rescue().steps.all()))
    assert done < total


@pytest.mark.parametrize(
    ("why", "minutes", "then"),
    [
        (reasons.of("verify_waits_for_agent"), 5, waits.THEN_A_PERSON),
        (reasons.of("verify_waits_for_gpus", missing=1, count=8), 10, waits.THEN_A_PERSON),
        (reasons.of("verify_waits_for_silent_agent"), 7, waits.THEN_A_PERSON),
        (reasons.of("hold_down", seconds=180), 3, waits.THEN_CHECKS),
        (reasons.of("faults_not_over", faults="xid 79"), 10, waits.THEN_AGAIN),
        (reasons.both(reasons.of("hold_down", seconds=180), reasons.of("late_reports", reports="x")), 3, None),
        (reasons.of("verify_not_ready"), None, None),
    ],
)
def test_each_wait_of_a_verification_has_its_own_end(
    world: World, why: reasons.Reason, minutes: int | None, then: object
) -> None:
    world.cluster.hold_down = 180
    progress = {"silent_at": (world.now + timedelta(minutes=2)).isoformat()}
    step = Step(index=1, name="verify", state="waiting", started_at=world.now, because=why.to_json(), progress=progress)
    found = waits.of(Rescue(cluster=world.cluster, state="waiting"), [step], {})
    if minutes is None:
        assert found is None
        return
    assert found is not None
    assert found.until == world.now + timedelta(minutes=minutes)
    assert then in (None, found.then)


def test_a_verification_counts_from_the_boot_after_the_repair(world: World) -> None:
    ready = Step(index=0, name="ready", state="done", finished_at=world.now - timedelta(minutes=1))
    why = reasons.of("verify_waits_for_agent").to_json()
    step = Step(index=1, name="verify", state="waiting", started_at=world.now, because=why)
    found = waits.of(Rescue(cluster=world.cluster, state="waiting"), [ready, step], {})
    assert found == Wait(world.now + timedelta(minutes=4), waits.THEN_A_PERSON)


# --- validations


def test_a_validation_shows_when_the_agent_must_have_answered(make: Callable[..., World], person) -> None:
    world = make(policy=POLICY, nodes=1)
    agents.comes_up(world)
    row = until_validating(world)
    target = row.run.targets.get()
    limit = autopilot.time_limit(row.run.checks, level=row.run.level)
    assert limit == profiles.DEFAULTS["light"].time_limit
    until = target.requested_at + node_checks.PICKUP_TIMEOUT + limit
    assert wait_of(world.rescue()) == Wait(until, waits.THEN_NOT_PROVEN)
    client = person("viewer")
    for page in ("/", f"/rescues/{world.rescue().pk}/", "/nodes/c1/gpu-1/"):
        assert str(waits.THEN_NOT_PROVEN) in client.get(page).content.decode(), page


@pytest.mark.parametrize("code", waits.ENDS_OF_VALIDATION)
def test_a_validation_that_has_not_begun_has_no_fixed_end(world: World, code: str) -> None:
    params = {"validation_waits_for_gpus": {"pods": "a/b"}, "validation_not_begun": {"validation": "1", "profile": "x"}}
    why = reasons.of(code, **params.get(code, {})).to_json()
    step = Step(index=1, name="validate", state="waiting", started_at=world.now, because=why)
    found = waits.of(Rescue(cluster=world.cluster, state="waiting"), [step], {})
    assert found == Wait(None, waits.ENDS_OF_VALIDATION[code])


@pytest.mark.parametrize("number", [1, 3])
def test_the_validations_of_all_rescues_take_one_statement(
    world: World, django_assert_num_queries: Callable[[int], Any], number: int
) -> None:
    for at in range(number):
        world.kube.add_node(f"n-{at}", gpus=8)
    world.sync()
    for at in range(number):
        node = world.node(f"n-{at}")
        common = {"cluster": world.cluster, "requested_at": world.now, "requested_by": "rescue"}
        run = CheckRun.objects.create(**common)
        validation = Validation.objects.create(**common, run=run, profile="light", document={}, state="running")
        command = Command.objects.create(
            node=node,
            kind="run_check",
            key=f"k-{at}",
            created_at=world.now,
            expires_at=world.now + timedelta(minutes=at),
        )
        CheckTarget.objects.create(run=run, node=node, place=0, batch=0, state="requested", command=command)
        rescue = Rescue.objects.create(
            cluster=world.cluster, node=node, state="waiting", requested_by="x", opened_at=world.now, due_at=world.now
        )
        progress = {"validation": validation.pk, "profile": "light"}
        Step.objects.create(
            rescue=rescue, index=0, name="validate", state="waiting", started_at=world.now, progress=progress
        )
    with django_assert_num_queries(4):  # rescues, steps, approvals, validations
        found = overview.active(Scope.of(world.cluster), now=world.now)
    assert [one.wait and one.wait.until for one in found] == [world.now + timedelta(minutes=at) for at in range(number)]


# --- guards


def test_a_rescue_in_a_maintenance_window_is_held_until_its_end(person, world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    rescue = world.rescue()
    until = world.now.replace(microsecond=0) + timedelta(hours=2)
    why = reasons.of("maintenance", scope="c1", until=reasons.moment(until))
    Rescue.objects.filter(pk=rescue.pk).update(state="waiting", hold="guard", because=why.to_json())
    assert wait_of(world.rescue()) == Wait(until, guard_holds.THEN_GUARDS, held=True)
    client = person("viewer")
    for page in ("/", f"/rescues/{rescue.pk}/", "/nodes/c1/gpu-1/"):
        assert str(guard_holds.THEN_GUARDS) in client.get(page).content.decode(), page
    paused = reasons.both(why, reasons.of("paused"))
    Rescue.objects.filter(pk=rescue.pk).update(because=paused.to_json())
    assert wait_of(world.rescue()) == Wait(None, str(guard_holds.ENDS["paused"]), held=True)
    assert str(guard_holds.ENDS["paused"]) in client.get(f"/rescues/{rescue.pk}/").content.decode()


def test_the_window_that_holds_a_rescue_back_names_its_end(make: Callable[..., World]) -> None:
    world = make(nodes=1)
    world.kube.add_pod("a", "b", node="gpu-1")
    world.kube.add_budget("a", "keep", match={})
    world.fault()
    world.work()
    until = world.now.replace(microsecond=0) + timedelta(hours=1)
    cluster_settings.open_maintenance(
        world.cluster, starts_at=world.now, ends_at=until, reason="switches", actor="user:a", now=world.now
    )
    for _ in range(60):
        world.pass_time(5)
        world.work()
        if world.rescue().hold == "guard":
            break
    assert wait_of(world.rescue()) == Wait(until, guard_holds.THEN_GUARDS, held=True)


def test_a_decision_that_a_guard_holds_back_names_its_end(person: Any, world: World) -> None:
    until = world.now.replace(microsecond=0) + timedelta(hours=1)
    cluster_settings.open_maintenance(
        world.cluster, starts_at=world.now, ends_at=until, reason="switches", actor="user:a", now=world.now
    )
    world.fault()
    world.work()
    incident, client = Incident.objects.get(), person("viewer")
    found, page = Wait(until, guard_holds.THEN_GUARDS, held=True), f"/incidents/{incident.pk}/"
    shown = client.get(page)
    assert shown.context["wait"] == found
    assert str(guard_holds.THEN_GUARDS) in shown.content.decode()
    node = client.get("/nodes/c1/gpu-1/")
    assert [one.wait for one in node.context["why"] if one.page == "incident"] == [found]
    assert str(guard_holds.THEN_GUARDS) in node.content.decode()

    expired = reasons.of("expired", seen=reasons.moment(world.now), within="1 h")
    assert guard_holds.of_decision([*incident.decisions.get().reasons, expired]) is None, "the act was dropped"
    assert guard_holds.of_decision([]) is None
    Incident.objects.update(state=Incident.State.CLOSED)
    assert client.get(page).context["wait"] is None


def test_a_card_names_what_ends_the_hold_of_its_decision(person: Any, world: World) -> None:
    Node.objects.update(labels={"kcover.io/exclude": "true"})
    world.fault()
    world.work()
    [card] = person("viewer").get("/").context["needs"].cards
    assert card.wait == Wait(None, str(guard_holds.ENDS["excluded"]), held=True)


def test_every_guard_has_an_end_and_none_an_invented_time() -> None:
    some = {
        "breaker": {"isolated": 1, "eligible": 9, "within": "5 min", "limit": 1},
        "budget": {"scope": "c1", "taken": 1, "limit": 1, "eligible": 9},
        "floor": {"pool": "a", "healthy": 1, "floor": 1, "eligible": 9},
        "excluded": {"node": "n", "label": "x"},
        "none_eligible": {"cluster": "c1"},
    }
    for code, params in some.items():
        found = guard_holds.of(reasons.of(code, **params))
        assert found == Wait(None, str(guard_holds.ENDS[code]), held=True)
    two = guard_holds.of(reasons.both(*(reasons.of(code, **some[code]) for code in ("budget", "breaker"))))
    assert two is not None
    assert all(str(guard_holds.ENDS[code]) in str(two.then) for code in ("budget", "breaker"))
    assert guard_holds.of(reasons.of("cordoned")) is None
    assert guard_holds.of(None) is None
