"""Until when a step waits, what happens then, and how far a rescue is."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.console.reads import rescues, waits
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


def wait_of(rescue: Rescue) -> waits.Wait | None:
    return waits.of(rescue, list(rescue.steps.all()))


def test_a_reboot_shows_how_long_it_waits_and_that_a_person_decides_then(person, world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    rescue = world.rescue()
    step = rescue.steps.get(name="reboot")
    asked = step.typed_progress.requested_at
    found = wait_of(rescue)
    assert found == waits.Wait(asked + timedelta(seconds=world.cluster.ready_within), waits.THEN_A_PERSON)
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
    assert waits.of(rescue, [step]) == waits.Wait(world.now + timedelta(seconds=seconds), then)


def test_a_held_wait_has_no_end(world: World) -> None:
    held = drain_step(started_at=world.now, progress={"held_since": world.now.isoformat()})
    assert waits.of(Rescue(cluster=world.cluster, state="waiting"), [held]) is None
    blocked = Rescue(cluster=world.cluster, state="waiting", hold=Rescue.Hold.GUARD)
    assert waits.of(blocked, [drain_step(started_at=world.now)]) is None


def test_a_denied_plan_is_not_done_and_looks_are_no_attempts(person, world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    rescue = world.rescue()
    Step.objects.filter(rescue=rescue, name="reboot").update(attempts=176)
    assert "176" not in person("viewer").get(f"/rescues/{rescue.pk}/").content.decode()
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
    found = waits.of(Rescue(cluster=world.cluster, state="waiting"), [step])
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
    found = waits.of(Rescue(cluster=world.cluster, state="waiting"), [ready, step])
    assert found == waits.Wait(world.now + timedelta(minutes=4), waits.THEN_A_PERSON)
