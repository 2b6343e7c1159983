"""Signed heads in a Lease of a cluster: only where an admin asks, never in shadow, compared before a replacement."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcover import audit
from kcover_portal.anchors import services, signed_heads
from kcover_portal.anchors.models import Divergence, Publication
from kcover_portal.anchors.senders import lease
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services.cluster_settings import set_cluster
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger, signatures
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.runtime import queries as runtime
from tests.codes import code_of
from tests.portal.ledger.tampered_rows import unguarded
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
PLACE = "lease c1"


@pytest.fixture
def world(tmp_path: Path, settings: Any) -> Iterator[World]:
    settings.KCOVER_SIGNING_KEY = tmp_path / "signing.pem"
    signatures.create_key(settings.KCOVER_SIGNING_KEY)
    made = World(policy="", nodes=1)
    made.kube.add_namespace("kcover-jobs")
    set_cluster(made.cluster, {"ledger_lease": True}, actor="user:root", reason="", now=made.now)
    yield made
    made.uninstall()


def publish(world: World) -> None:
    ledger.record("c1", audit.PasswordChanged(user="ann"), actor="user:ann", now=world.now)
    services.publish(now=world.now)


def held(world: World) -> signed_heads.SignedHeads | None:
    annotations = world.kube.lease_annotations("kcover-jobs", lease.NAME)
    return signed_heads.parse(annotations[lease.ANNOTATION]) if annotations else None


def newest() -> tuple[int, str]:
    chain = Chain.objects.get(cluster="c1")
    return chain.sequence, chain.digest


def test_the_lease_has_the_newest_head_of_its_cluster_signed(world: World) -> None:
    Cluster.objects.create(name="other", created_at=world.now)
    ledger.record("other", audit.PasswordChanged(user="ann"), actor="user:ann", now=world.now)
    for _ in range(2):
        publish(world)
        found = held(world)
        assert found is not None
        assert found.is_genuine(signatures.public_keys())
        assert [(head.cluster, head.sequence, head.digest) for head in found.heads] == [("c1", *newest())]
    assert Publication.objects.get(place=PLACE).why is None


def test_no_lease_without_the_setting(world: World) -> None:
    set_cluster(world.cluster, {"ledger_lease": False}, actor="user:root", reason="", now=world.now)
    publish(world)
    assert held(world) is None
    assert not Publication.objects.filter(place=PLACE).exists()
    assert not Cluster().ledger_lease


@pytest.mark.parametrize("mode", ["shadow", "paused"])
def test_inv_48_no_lease_in_shadow_or_pause(world: World, mode: str) -> None:
    Cluster.objects.update(mode=mode)
    world.kube.calls.clear()
    publish(world)
    assert world.kube.calls == []


def test_a_cluster_that_is_away_is_a_problem_of_its_place(world: World) -> None:
    world.kube.fail("lease_annotations", port.Unavailable("down"))
    publish(world)
    assert code_of(Publication.objects.get(place=PLACE).problem) == "cluster_unavailable"
    assert Publication.objects.get(place="log").why is None
    world.kube.fail("keep_lease", port.RefusedByServer("403 Forbidden"))
    publish(world)
    assert code_of(Publication.objects.get(place=PLACE).problem) == "cluster_rejected"
    publish(world)
    assert Publication.objects.get(place=PLACE).why is None


def test_a_database_that_lacks_the_held_head_is_paused_and_the_lease_stays(world: World) -> None:
    """There is no anchor file: the shipped manifests have no volume for one."""
    for _ in range(3):
        publish(world)
    before = held(world)
    with unguarded():
        Entry.objects.filter(cluster="c1").order_by("-sequence").first().delete()
        last = Entry.objects.filter(cluster="c1").order_by("-sequence").first()
        Chain.objects.filter(cluster="c1").update(sequence=last.sequence, digest=last.digest)
    services.publish(now=world.now)
    assert runtime.installation().mode == "paused"
    assert Divergence.objects.count() == 1
    assert held(world) == before
    fleet.resume(cluster=None, reason="restored", actor="user:root", now=world.now)
    publish(world)
    assert Divergence.objects.count() == 1
    after = held(world)
    assert after is not None
    assert after.heads[0].sequence == newest()[0]


NOBODYS = '{"kind": "kcover-ledger-heads", "key_id": "0", "signature": "AA==", "at": "%s", "heads": [%s]}'
LONE_SURROGATE = r'{"cluster": "\ud800", "sequence": 1, "digest": "", "entries": 1}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        '{"kind": 1}',
        NOBODYS % ("2026-01-01T00:00:00+00:00", LONE_SURROGATE),
        NOBODYS % ("0001-01-01T00:00:00+14:00", ""),  # before the calendar in UTC
    ],
)
def test_an_invalid_lease_is_replaced(world: World, text: str) -> None:
    draft = {"name": lease.NAME, "namespace": "kcover-jobs", "holder": "x", "at": world.now}
    world.kube.keep_lease(port.LeaseDraft(**draft, annotations={lease.ANNOTATION: text}))
    publish(world)
    found = held(world)
    assert found is not None
    assert found.heads
