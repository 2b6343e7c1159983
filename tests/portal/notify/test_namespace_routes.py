"""Namespaces that an admin binds to a released channel: their jobs tell it when they name none themselves."""

from collections.abc import Callable
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import services as jobs
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import queries, services
from kcover_portal.notify.models import Channel, NamespaceRoute
from tests.portal.notify.conftest import make_channel
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_owners import add_job, ask_by_label, drain, events_in, moves, released
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]


def bind(world: World, namespace: str = "train", *, channel: str = "train-owners") -> NamespaceRoute:
    row = Channel.objects.get(name=channel)
    return services.make_namespace_route(
        row, cluster=world.cluster, namespace=namespace, actor="user:ann", now=world.now
    )


def test_a_job_without_a_channel_uses_the_channel_of_its_namespace(
    world: World, receiver: Receiver, delivered: Delivered
) -> None:
    released(world, receiver)
    bind(world)
    add_job(world, channel="")
    drain(world)
    assert events_in(delivered()) == [("job.moving", "PyTorchJob train/llm"), ("job.moved", "PyTorchJob train/llm")]


def test_a_refused_order_by_label_is_sent_to_the_channel_of_the_namespace(
    world: World, receiver: Receiver, delivered: Delivered
) -> None:
    released(world, receiver)
    bind(world)
    add_job(world, channel="")
    ask_by_label(world)
    jobs.look_for_labels(world.cluster, now=world.now)
    assert events_in(delivered()) == [("job.ended", "PyTorchJob train/llm")]


def test_the_owners_own_channel_takes_precedence(world: World, receiver: Receiver) -> None:
    released(world, receiver)
    bind(world)
    add_job(world, channel="mine")
    drain(world)
    assert {entry.data["channel"] for entry in moves()} == {"mine"}


@pytest.mark.parametrize("why", ["other namespace", "other cluster", "withdrawn", "deleted"])
def test_where_no_route_leads_nothing_is_sent(world: World, receiver: Receiver, delivered: Delivered, why: str) -> None:
    released(world, receiver)
    row = bind(world, "eval" if why == "other namespace" else "train")
    if why == "other cluster":
        NamespaceRoute.objects.update(cluster=Cluster.objects.create(name="other", created_at=world.now))
    elif why == "withdrawn":
        Channel.objects.update(for_owners=False)
    elif why == "deleted":
        services.delete_namespace_route(row, actor="user:ann", reason="moved", now=world.now)
    add_job(world, channel="")
    drain(world)
    assert events_in(delivered()) == []


def test_the_most_specific_route_counts(world: World, receiver: Receiver) -> None:
    patterns = ("*", "team-*", "team-llm-*", "team-llm-7")
    for number, namespace in enumerate(patterns):
        make_channel(receiver, name=f"c{number}", now=world.now, for_owners=True)
        bind(world, namespace, channel=f"c{number}")
    channel_of = queries.channels_of_namespaces(world.cluster.pk)
    names = ("train", "team-a", "team-llm-1", "team-llm-7")
    assert [channel_of(namespace) for namespace in names] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("unusable", [{"enabled": False}, {"for_owners": False}])
def test_a_channel_that_cannot_be_used_hides_no_pattern(
    world: World, receiver: Receiver, unusable: dict[str, bool]
) -> None:
    for name, namespace in (("c0", "team-*"), ("c1", "team-a")):
        make_channel(receiver, name=name, now=world.now, for_owners=True)
        bind(world, namespace, channel=name)
    Channel.objects.filter(name="c1").update(**unusable)
    assert queries.channels_of_namespaces(world.cluster.pk)("team-a") == "c0"


@pytest.mark.parametrize("namespace", ["", "-a", "A", "a b", "a?", "[a]", "****", "a" * 64, "a\0"])
def test_an_invalid_namespace_is_refused(world: World, receiver: Receiver, namespace: str) -> None:
    released(world, receiver)
    with pytest.raises(FieldError) as refused:
        bind(world, namespace)
    assert (refused.value.field, refused.value.reason.code) == ("namespace", "namespace_pattern_invalid")


def test_a_namespace_has_one_channel_and_only_a_released_one(world: World, receiver: Receiver) -> None:
    released(world, receiver)
    make_channel(receiver, name="on-call", now=world.now)
    bind(world)
    for channel, code in (("train-owners", "namespace_route_exists"), ("on-call", "channel_not_released")):
        with pytest.raises(FieldError) as refused:
            bind(world, channel=channel)
        assert refused.value.reason.code == code


def test_binding_and_unbinding_are_in_the_audit_log(world: World, receiver: Receiver) -> None:
    released(world, receiver)
    row = bind(world, "team-*")
    services.delete_namespace_route(row, actor="user:bo", reason="moved", now=world.now)
    made, gone = Entry.objects.filter(verb__startswith="namespace_route.").order_by("pk")
    assert (made.verb, made.actor, made.data["namespace"], made.data["cluster"]) == (
        *("namespace_route.created", "user:ann"),
        *("team-*", "c1"),
    )
    assert (gone.verb, gone.actor, gone.data["reason"]) == ("namespace_route.deleted", "user:bo", "moved")
