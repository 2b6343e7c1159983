"""Verifications of hash chains as jobs: in slices, interrupted, bounded, and read by their owner only."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover import audit
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.anchors import tasks
from kcover_portal.anchors.models import Verification
from kcover_portal.anchors.services import verifications
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.services import concurrency_limits, retention, slices
from tests.portal.ledger.tampered_rows import unguarded

pytestmark = pytest.mark.django_db
PATH = "/api/v1/audit/verifications"
ENTRIES = 7


@pytest.fixture(autouse=True)
def chains(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications, "CHUNK_ENTRIES", 3)
    for name in ("east", "west"):
        Cluster.objects.create(name=name, created_at=now)
        for number in range(ENTRIES):
            ledger.record(name, audit.UserDisabled(user=f"u{number}", reason=""), actor="test", now=now)


def signed_in(name: str, *clusters: str) -> Client:
    user = User.objects.create(username=name)
    for cluster in clusters or (None,):
        row = Cluster.objects.get(name=cluster) if cluster else None
        accounts.bind(user, "viewer", cluster=row, actor="test", now=timezone.now())
    client = Client()
    client.force_login(user)
    return client


def begin(client: Client) -> dict[str, Any]:
    answer = client.post(PATH)
    assert answer.status_code == 202, answer.content
    found: dict[str, Any] = answer.json()
    assert answer.headers["Location"].endswith(f"{PATH}/{found['id']}")
    return found


def work(pk: int, at: datetime | None = None) -> None:
    while pk in verifications.due(now=at or timezone.now()):
        verifications.advance(pk, clock=lambda: at or timezone.now())


def read(client: Client, pk: int) -> dict[str, Any]:
    answer = client.get(f"{PATH}/{pk}")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_a_request_begins_a_verification_and_workers_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = signed_in("ann", "east", "west")
    made = begin(client)
    assert (made["state"], made["progress"]["done"], made["chains"]) == ("waiting", 0, [])
    assert begin(client)["id"] == made["id"]  # one of a person at a time
    monkeypatch.setattr(slices, "SLICE_SECONDS", -1)
    tasks.advance_verification(made["id"])
    found = read(client, made["id"])
    assert (found["state"], found["progress"]["done"]) == ("running", 3)
    work(made["id"])
    found = read(client, made["id"])
    assert (found["state"], found["progress"]["done"]) == ("done", found["progress"]["total"])
    intact = [(one["cluster"], one["entries"], one["intact"], one["broken_at"]) for one in found["chains"]]
    assert intact == [(name, ENTRIES + 1, True, None) for name in ("east", "west")]  # and the role of ann
    assert begin(client)["id"] != made["id"]


def test_a_break_beyond_the_first_slice_is_found() -> None:
    client = signed_in("ann", "east", "west")
    with unguarded():
        Entry.objects.filter(sequence=5, cluster="east").update(actor="mallory")
    pk = begin(client)["id"]
    work(pk)
    east, west = read(client, pk)["chains"]
    assert (east["cluster"], east["intact"], east["broken_at"], bool(east["because"])) == ("east", False, 5, True)
    assert west["intact"]


def test_another_worker_continues_after_a_death_and_gives_up_after_several() -> None:
    client = signed_in("ann", "east")
    pk = begin(client)["id"]
    now = timezone.now()
    lost = {"state": "running", "holder": "dead", "lease_until": now + slices.LEASE_TIME}
    Verification.objects.filter(pk=pk).update(**lost)
    verifications.advance(pk, clock=lambda: now)
    assert Verification.objects.get(pk=pk).holder == "dead"
    work(pk, now + slices.LEASE_TIME)
    assert read(client, pk)["state"] == "done"
    pk = begin(client)["id"]
    Verification.objects.filter(pk=pk).update(slices=slices.MAX_SLICES)
    work(pk)
    assert read(client, pk)["state"] == "failed"


def test_only_the_owner_reads_a_verification_and_only_visible_clusters() -> None:
    ann, eve = signed_in("ann", "east", "west"), signed_in("eve", "east")
    pk = begin(ann)["id"]
    work(pk)
    assert eve.get(f"{PATH}/{pk}").status_code == 404
    assert eve.get(f"/audit/verifications/{pk}/").status_code == 404
    accounts.unbind(
        User.objects.get(username="ann"), cluster=Cluster.objects.get(name="west"), actor="t", now=timezone.now()
    )
    assert [one["cluster"] for one in read(ann, pk)["chains"]] == ["east"]
    own = begin(eve)["id"]
    work(own)
    assert [one["cluster"] for one in read(eve, own)["chains"]] == ["east"]


def test_waiting_verifications_are_bounded_and_one_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifications, "MAX_OPEN", 1)
    ann, eve = signed_in("ann", "east"), signed_in("eve", "east")
    pk = begin(ann)["id"]
    refused = eve.post(PATH)
    assert (refused.status_code, refused.json()["code"]) == (429, "places_taken")
    assert refused.headers["Retry-After"]
    assert eve.post("/audit/verify/").status_code == 429
    taken = concurrency_limits.take(concurrency_limits.VERIFICATIONS, "other", now=timezone.now())
    tasks.advance_verifications()
    verifications.advance(pk, clock=timezone.now)
    assert read(ann, pk)["state"] == "waiting"
    taken.give_back(now=timezone.now())
    work(pk)
    assert read(ann, pk)["state"] == "done"
    verifications.prune(now=timezone.now() + retention.time(Verification) + timedelta(minutes=1))
    assert ann.get(f"{PATH}/{pk}").status_code == 404
