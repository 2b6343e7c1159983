"""Uploads: chunks in order, the hash of the whole, and the bounds of what is kept."""

import hashlib
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.evidence import bundle as core
from kcover_portal.evidence import queries, services
from kcover_portal.evidence.models import Bundle, Chunk
from kcover_portal.evidence.services import stored_bundles, uploads
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.ledger.models import Entry

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
PIECE = uploads.MIN_CHUNK_BYTES
CONTENT = bytes(range(256)) * (PIECE // 256) + b"the end"


@pytest.fixture
def node() -> Node:
    cluster = Cluster.objects.create(name="c1", created_at=NOW)
    return Node.objects.create(cluster=cluster, name="gpu-1", created_at=NOW)


def asked(node: Node, rescue: int = 1, *, now: datetime = NOW) -> Bundle:
    services.request(node, rescue=rescue, number=1, boot_id="boot-1", now=now)
    return Bundle.objects.get(rescue=rescue)


def take(node: Node, row: Bundle, content: bytes = CONTENT, *, now: datetime = NOW, **changes: Any) -> int:
    """One chunk of the content, from ``offset`` on; ``chunk`` None: the rest."""
    offset = changes.pop("offset", 0)
    chunk = changes.pop("chunk", None) or content[offset:]
    name = changes.pop("sender", node.name)
    fields = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "bundle": row.pk, **changes}
    upload = core.Upload(offset=offset, **fields)
    return services.take(node.cluster, name, upload, chunk, now=now)


def kept(node: Node, rescue: int, *, content: bytes = CONTENT, now: datetime = NOW) -> Bundle:
    bundle = asked(node, rescue, now=now)
    take(node, bundle, content, now=now)
    bundle.refresh_from_db()
    assert bundle.state == "kept"
    return bundle


def test_chunks_in_order_make_the_bundle(node: Node) -> None:
    bundle = asked(node)
    later = NOW + timedelta(seconds=10)
    assert take(node, bundle, chunk=CONTENT[:PIECE], age=4, now=later) == PIECE
    assert take(node, bundle, offset=PIECE, age=5, now=later) == len(CONTENT)
    bundle.refresh_from_db()
    assert (bundle.state, bundle.size, bundle.received) == ("kept", len(CONTENT), len(CONTENT))
    assert (bundle.taken_at, bundle.kept_at) == (later - timedelta(seconds=4), later)
    assert b"".join(queries.content(bundle)) == CONTENT
    entry = Entry.objects.get(verb="evidence.kept")
    assert (entry.actor, entry.data) == (
        "agent:gpu-1",
        {"number": 1, "sha256": hashlib.sha256(CONTENT).hexdigest(), "size": len(CONTENT)},
    )


def test_a_repeated_or_early_chunk_is_not_stored(node: Node) -> None:
    bundle = asked(node)
    assert take(node, bundle, offset=PIECE) == 0
    take(node, bundle, chunk=CONTENT[:PIECE])
    assert take(node, bundle, chunk=CONTENT[:PIECE]) == PIECE
    assert Chunk.objects.count() == 1
    take(node, bundle, offset=PIECE)
    assert take(node, bundle, offset=PIECE) == len(CONTENT)  # the answer was lost
    assert Entry.objects.filter(verb="evidence.kept").count() == 1


def test_inv_49_a_bundle_counts_only_with_its_hash(node: Node) -> None:
    bundle = asked(node)
    wrong = "0" * 64
    for attempt in range(uploads.MAX_RESTARTS):
        assert take(node, bundle, sha256=wrong) == 0
        bundle.refresh_from_db()
        assert bundle.state == ("missed" if attempt == uploads.MAX_RESTARTS - 1 else "requested")
    assert not Chunk.objects.exists()
    assert not Entry.objects.exists()
    with pytest.raises(services.UnknownBundle):
        take(node, bundle, sha256=wrong)


def test_an_unrequested_bundle_is_refused(node: Node) -> None:
    Node.objects.create(cluster=node.cluster, name="gpu-2", created_at=NOW)
    bundle = asked(node)
    for wrong in ({"sender": "gpu-2"}, {"bundle": uuid.uuid4()}):
        with pytest.raises(services.UnknownBundle):
            take(node, bundle, **wrong)
    other = Node.objects.create(cluster=Cluster.objects.create(name="c2", created_at=NOW), name="gpu-1", created_at=NOW)
    with pytest.raises(services.UnknownBundle):
        take(other, bundle)
    with pytest.raises(services.UnknownBundle):
        take(node, bundle, now=NOW + queries.UPLOAD_TIME_LIMIT + timedelta(seconds=1))
    assert not Chunk.objects.exists()


@pytest.mark.parametrize("change", [{"size": len(CONTENT) + 1}, {"sha256": "0" * 64}])
def test_size_and_hash_are_fixed_by_the_first_chunk(node: Node, change: dict[str, Any]) -> None:
    bundle = asked(node)
    take(node, bundle, chunk=CONTENT[:PIECE])
    with pytest.raises(services.AnotherBundle):
        take(node, bundle, offset=PIECE, **change)


def test_chunks_have_a_length(node: Node) -> None:
    bundle = asked(node)
    with pytest.raises(services.WrongChunk):
        take(node, bundle, chunk=CONTENT[: PIECE - 1])
    with pytest.raises(services.WrongChunk):
        take(node, bundle, chunk=CONTENT + b"more")


def test_a_request_offers_one_command(node: Node) -> None:
    assert services.request(node, rescue=1, number=1, boot_id="boot-1", now=NOW)
    assert not services.request(node, rescue=1, number=1, boot_id="boot-1", now=NOW)
    assert services.request(node, rescue=1, number=2, boot_id="", now=NOW)
    first, second = Command.objects.order_by("key")
    assert (first.kind, first.args["boot_id"]) == ("collect_evidence", "boot-1")
    assert second.args.keys() == {"bundle"}


def test_a_deleted_bundle_is_not_wanted_again(node: Node) -> None:
    bundle = kept(node, 1)
    services.prune(now=NOW + timedelta(days=91))
    assert take(node, bundle) == len(CONTENT)
    assert not Chunk.objects.exists()


# ---------------------------------------------------------------------------------------------------------- retention


def states() -> dict[int, str]:
    return dict(Bundle.objects.values_list("rescue", "state"))


def test_old_content_is_deleted_and_its_hash_stays(node: Node, settings: Any) -> None:
    settings.KCOVER_KEEP_DAYS = 30
    old = kept(node, 1)
    kept(node, 2, now=NOW + timedelta(days=29))
    services.prune(now=NOW + timedelta(days=30, seconds=1))
    assert states() == {1: "deleted", 2: "kept"}
    old.refresh_from_db()
    assert (old.received, old.size, len(old.sha256)) == (0, len(CONTENT), 64)


def test_the_oldest_make_room(node: Node, settings: Any) -> None:
    content = bytes(200 << 10)
    settings.KCOVER_EVIDENCE_MIB = 1
    for rescue in range(1, 8):
        kept(node, rescue, content=content, now=NOW + timedelta(minutes=rescue))
    services.prune(now=NOW + timedelta(hours=1))
    assert [rescue for rescue, state in sorted(states().items()) if state == "kept"] == [4, 5, 6, 7]
    assert queries.stored_bytes() <= 1 << 20


def test_a_node_has_so_many_and_takes_no_room_from_others(node: Node) -> None:
    other = Node.objects.create(cluster=node.cluster, name="gpu-2", created_at=NOW)
    kept(other, 1)
    for rescue in range(2, stored_bundles.MAX_BUNDLES_PER_NODE + 5):
        kept(node, rescue, now=NOW + timedelta(minutes=rescue))
    services.prune(now=NOW + timedelta(hours=1))
    found = states()
    assert found[1] == "kept"
    assert [rescue for rescue, state in found.items() if state == "deleted"] == [2, 3, 4]


def test_an_upload_that_never_ends_is_given_up(node: Node) -> None:
    bundle = asked(node)
    take(node, bundle, chunk=CONTENT[:PIECE])
    services.prune(now=NOW + queries.UPLOAD_TIME_LIMIT)
    assert states() == {1: "requested"}
    services.prune(now=NOW + queries.UPLOAD_TIME_LIMIT + timedelta(seconds=1))
    assert states() == {1: "missed"}
    assert not Chunk.objects.exists()
