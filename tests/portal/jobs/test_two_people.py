"""Orders by hand where the cluster wants two people: they wait for an approver who is not their requester."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import queries, services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.ledger.models import Entry
from tests.codes import code_of, refused
from tests.portal.jobs.job_world import JobWorld
from tests.portal.rescue.test_actions_restart_jobs import add_job, deleted

pytestmark = pytest.mark.django_db
ANN, BEN, EVE = ({"requested_by": f"user:{name}", "people": [f"user:{name}"]} for name in ("ann", "ben", "eve"))


@pytest.fixture(autouse=True)
def _always(world: JobWorld) -> None:
    Cluster.objects.update(hand_approval="always")
    world.cluster.refresh_from_db()
    add_job(world, "llm", "gpu-1", protected="job")


def states() -> list[str]:
    return list(JobOrder.objects.order_by("pk").values_list("state", flat=True))


def decline(world: JobWorld, *, by: str, may_approve: bool = False, reason: str = "") -> JobOrder:
    about = {"kind": "PyTorchJob", "namespace": "train", "name": "llm", "actor": by, "people": [by]}
    return services.decline(world.cluster, **about, reason=reason, may_approve=may_approve, now=world.now)


@pytest.mark.parametrize("mode", ["enforce", "approve"])
@pytest.mark.parametrize("action", ["restart", "stop"])
def test_an_order_waits_until_an_approver_gives_it_too(world: JobWorld, action: str, mode: str) -> None:
    Cluster.objects.update(mode=mode)
    world.cluster.refresh_from_db()
    order = world.order(action, **ANN)
    assert (order.state, code_of(order.because), order.requesters) == ("held", "job_awaits_approval", ["user:ann"])
    world.work()
    assert deleted(world) == []
    assert list(queries.left_to_people()) == [order]
    with refused(services.OrderRefused, "job_order_waits"):
        world.order(action, **BEN)  # an operator
    approved = world.order(action, **BEN, may_approve=True)
    assert states() == ["replaced", "running"]
    world.work()
    assert bool(deleted(world)) == (action == "restart")
    entries = Entry.objects.filter(verb__in=("job.ordered", "job.settled")).order_by("sequence")
    said = [(entry.verb, entry.actor) for entry in entries[:4]]
    assert said[:2] == [("job.ordered", "user:ann"), ("job.settled", "user:ann")]
    assert sorted(said[2:]) == [("job.ordered", "user:ben"), ("job.settled", "user:ben")]
    assert approved.requested_by == "user:ben"


def test_the_requester_cannot_approve_the_own_order(world: JobWorld) -> None:
    """Not by a second account of the same person, nor as the owner of the token that asked."""
    world.order(**ANN, may_approve=True)
    with refused(services.OrderRefused, "job_order_waits"):
        world.order(**ANN, may_approve=True)
    second = {"requested_by": "user:ann2", "people": ["user:ann2", "user:ann"]}  # ann set its password
    with refused(services.OrderRefused, "job_order_waits"):
        world.order(**second, may_approve=True)
    decline(world, by="user:ann")
    world.order(requested_by="token:operator kco_1", people=["user:ann"])
    with refused(services.OrderRefused, "job_order_waits"):
        world.order(**ANN, may_approve=True)
    assert states() == ["failed", "held"]
    assert world.order(**BEN, may_approve=True).state == "running"


def test_the_order_of_a_disabled_account_cannot_be_approved(world: JobWorld) -> None:
    ann = accounts.make_user("ann", password="correct horse battery", role="operator", created_by="x", now=world.now)
    world.order(**ANN)
    accounts.disable(ann, actor="user:eve", now=world.now)
    with refused(services.OrderRefused, "vote_of_gone"):
        world.order(**BEN, may_approve=True)
    decline(world, by="user:ben", may_approve=True)
    assert deleted(world) == []


def test_another_act_replaces_the_order(world: JobWorld) -> None:
    world.order("restart", **ANN)
    assert world.order("stop", **BEN, may_approve=True).state == "held"
    assert states() == ["replaced", "held"]


def test_an_order_is_taken_back_or_declined(world: JobWorld) -> None:
    with refused(services.OrderRefused, "job_no_order_waits"):
        decline(world, by="user:ann")
    world.order(**ANN)
    with refused(services.OrderRefused, "job_order_of_another"):
        decline(world, by="user:eve")
    assert code_of(decline(world, by="user:ann", reason="wrong job").because) == "job_order_declined_because"
    world.order(**ANN)
    assert decline(world, by="user:ben", may_approve=True).state == "failed"
    assert not queries.left_to_people().exists()


def test_an_order_expires_after_a_day(world: JobWorld) -> None:
    order = world.order(**ANN)
    world.now += timedelta(days=1)
    assert world.order(**BEN, may_approve=True).state == "held"  # no approval of what is long forgotten
    services.look_for_returns(world.cluster, now=world.now)
    order.refresh_from_db()
    assert order.state == "replaced"
    world.now += timedelta(days=1)
    services.look_for_returns(world.cluster, now=world.now)
    assert code_of(JobOrder.objects.latest("pk").because) == "job_order_expired"


def test_an_order_that_waits_stops_no_recovery(world: JobWorld) -> None:
    """An operator could otherwise switch off the restarts of a job for a day."""
    world.order("stop", **ANN)
    [pod] = world.kube.list_pods(namespace="train")
    because = reasons.of("job_container_failed", container="main", pod="train/llm-0", exit_code=1)
    recovered = services.recover_pod(world.cluster, pod, because=because, now=world.now)
    assert recovered is not None
    assert recovered.state == "running"


def test_an_approver_gives_the_order_for_which_the_portal_asks(world: JobWorld) -> None:
    Cluster.objects.update(job_recovery="approve")
    world.cluster.refresh_from_db()
    [pod] = world.kube.list_pods(namespace="train")
    because = reasons.of("job_container_failed", container="main", pod="train/llm-0", exit_code=1)
    asked = services.recover_pod(world.cluster, pod, because=because, now=world.now)
    assert asked is not None
    assert world.order(**EVE).state == "held"
    asked.refresh_from_db()
    assert asked.state == "held"  # an operator's order does not take the question's place
    assert world.order(**BEN, may_approve=True).state == "running"


@pytest.mark.parametrize("consents", [True, False])
def test_a_label_takes_the_place_of_no_order_that_awaits_approval(world: JobWorld, consents: bool) -> None:
    """Whoever may label the job could otherwise end the order of a person."""
    if not consents:
        world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/cascading-recovery": None})
    stop = world.order("stop", **ANN)
    world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/need-recovery": "true"})
    (by_label,) = services.look_for_labels(world.cluster, now=world.now)
    assert by_label.state == ("running" if consents else "failed")
    stop.refresh_from_db()
    assert (stop.state, stop.awaits_approval) == ("held", True)


def test_the_dry_run_shows_that_another_person_is_needed(world: JobWorld) -> None:
    about = {"kind": "PyTorchJob", "namespace": "train", "name": "llm", "action": "restart", "now": world.now}
    found = services.preview(world.cluster, **about, people=["user:ann"])
    assert (found.standing.waits, found.held_back) == (True, ())
    world.order(**ANN)
    found = services.preview(world.cluster, **about, people=["user:ann"])
    assert [reason.code for reason in found.held_back] == ["job_order_waits"]
    found = services.preview(world.cluster, **about, people=["user:ben"], may_approve=True)
    assert found.held_back == ()
