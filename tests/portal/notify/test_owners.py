"""The channel that a job names gets a message before and after a step moves the job, if an admin released it."""

from collections.abc import Callable
from typing import Any

import pytest

from kcover_portal.jobs import services as jobs
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel
from kcover_portal.policies import services as policies
from kcover_portal.workloads.training_jobs import CHECKPOINT, NEEDS_RECOVERY, NOTIFY, PROTECTED
from tests.codes import codes_of
from tests.portal.notify.conftest import make_channel
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue import worker_kills
from tests.portal.rescue.test_actions_restart_jobs import KUBEFLOW, POLICY
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
MOVES = ("job.moving", "job.moved")


def add_job(world: World, name: str = "llm", *, channel: str = "train-owners", **annotations: str) -> None:
    world.kube.add_workload("PyTorchJob", "train", name, labels={PROTECTED: "true"})
    metadata = {"metadata": {"annotations": {NOTIFY: channel, **annotations}}}
    world.kube.objects.merge("PyTorchJob", "train", name, metadata)
    labels = {KUBEFLOW: name, PROTECTED: "true"}
    world.kube.add_pod("train", f"{name}-0", node=NODE, owner_kind="PyTorchJob", owner_name=name, labels=labels)


def released(world: World, receiver: Receiver, **given: Any) -> None:
    make_channel(receiver, name="train-owners", now=world.now, **{"for_owners": True, **given})


def events_in(documents: list[Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["what"]) for document in documents for one in document["events"]]


def moves() -> list[Entry]:
    return list(Entry.objects.filter(verb__in=MOVES).order_by("sequence"))


def drain(world: World) -> None:
    world.fault(62)
    world.until("waiting", step="drain")
    world.pass_time()


def test_the_owner_is_notified_before_and_after_a_drain_of_their_jobs_only(
    world: World, receiver: Receiver, delivered: Delivered
) -> None:
    released(world, receiver)
    add_job(world)
    add_job(world, "other", channel="secret-of-others")
    add_job(world, "none", channel="")
    drain(world)
    assert events_in(delivered()) == [("job.moving", "PyTorchJob train/llm"), ("job.moved", "PyTorchJob train/llm")]
    before, *_, after = [entry for entry in moves() if entry.data["job"] == "train/llm"]
    assert codes_of(before.data["because"]) == ["owner_before_drain"]
    assert codes_of(after.data["because"]) == ["owner_after_drain"]
    first = Entry.objects.filter(verb="evict.begun").order_by("sequence").first()
    assert first is not None
    assert before.sequence < first.sequence < after.sequence


def ask_by_label(world: World, name: str = "llm", *, protected: bool = False) -> None:
    world.cluster.job_recovery = "enforce"
    world.cluster.save()
    world.kube.label_workload(
        "train", "PyTorchJob", name, labels={NEEDS_RECOVERY: "true", PROTECTED: str(protected).lower()}
    )


def test_the_owner_is_notified_why_an_order_by_label_is_refused(
    world: World, receiver: Receiver, delivered: Delivered
) -> None:
    released(world, receiver)
    add_job(world)
    add_job(world, "other", channel="Not A Name")
    for name in ("llm", "other"):
        ask_by_label(world, name)
    for _ in range(2):  # what was refused is refused once
        jobs.look_for_labels(world.cluster, now=world.now)
    [document] = delivered()
    assert events_in([document]) == [("job.ended", "PyTorchJob train/llm")]
    settled = {entry.data["job"]: entry.data for entry in Entry.objects.filter(verb="job.settled")}
    assert {job: data.get("channel") for job, data in settled.items()} == {
        "train/llm": "train-owners",
        "train/other": None,
    }
    assert "job_not_protected" in codes_of(settled["train/llm"]["because"])


def test_the_owner_is_not_notified_of_an_accepted_order_by_label(world: World, receiver: Receiver) -> None:
    released(world, receiver)
    add_job(world)
    ask_by_label(world, protected=True)
    [order] = jobs.look_for_labels(world.cluster, now=world.now)
    assert order.state == "running"
    assert not Entry.objects.filter(verb="job.settled").exists()


@pytest.mark.parametrize("given", [{"for_owners": False}, {"enabled": False}])
def test_an_unreleased_channel_receives_nothing(
    world: World, receiver: Receiver, delivered: Delivered, given: dict[str, bool]
) -> None:
    released(world, receiver, **given)
    add_job(world)
    drain(world)
    assert events_in(delivered()) == []
    assert len(moves()) == 2


@pytest.mark.parametrize("channel", ["Not A Name", "a" * 300, "x\n"])
def test_an_annotation_that_is_no_name_is_ignored(world: World, channel: str) -> None:
    add_job(world, channel=channel)
    drain(world)
    assert moves() == []


def test_the_restart_of_a_job_is_notified_once_by_the_step_that_makes_it(world: World) -> None:
    both = POLICY.replace(
        "{name: restartJobs}", "{name: restartJobs}, {name: drain, attribute: {checkpointWait: 5min}}"
    )
    policies.apply(both.replace('"62"', '"63"'), author="test", reason="", now=world.now)
    add_job(world, **{CHECKPOINT: "2026-11-21T07:00:00Z"})
    world.fault(63)
    world.until("waiting", step="restart_jobs")
    (entry,) = moves()
    assert (entry.verb, entry.data["action"]) == ("job.moving", "restart_jobs")
    assert codes_of(entry.data["because"]) == ["owner_before_restart_jobs", "owner_checkpoint"]


def test_an_owner_is_not_notified_of_an_act_that_a_guard_prevents(world: World) -> None:
    add_job(world)
    world.fault(62)
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.sync()
    world.work()
    assert moves() == []


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_notifies_owners_once(world: World, after: bool) -> None:
    add_job(world)
    worker_kills.kill_at(world.kube, "evict", call=1, after=after)
    world.fault(62)
    assert worker_kills.work(world)
    for _ in range(5):
        world.pass_time()
    assert [entry.verb for entry in moves()] == list(MOVES)


def test_a_pager_or_a_personal_channel_cannot_be_released(world: World, receiver: Receiver) -> None:
    with pytest.raises(FieldError) as refused:
        services.CHANNELS.make(
            Channel(name="pager", kind="pagerduty"),
            {"secret": "a" * 32, "for_owners": True},
            actor="test",
            now=world.now,
        )
    assert (refused.value.field, refused.value.reason.code) == ("for_owners", "owners_of_channel")
