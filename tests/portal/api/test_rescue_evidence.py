"""``GET rescues/{id}/evidence`` and the file: for those who may see the rescue, with the hash of the audit log."""

import gzip
import hashlib
from datetime import datetime, timedelta

import pytest
from django.test import Client

from kcover.evidence import bundle as core
from kcover_portal.accounts import services as accounts
from kcover_portal.evidence import services
from kcover_portal.evidence.models import Bundle
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import concurrency_limits
from tests.portal.api.conftest import Api, add_story, caller, problem

pytestmark = pytest.mark.django_db
CONTENT = gzip.compress(b"NVRM: Xid 79", mtime=0)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def rescue(node: Node, now: datetime) -> Rescue:
    """A rescue with one bundle that is stored, and one that is requested."""
    found = add_story(node, now)
    for number in (1, 2):
        services.request(node, rescue=found.pk, number=number, boot_id="b", now=now)
    bundle = Bundle.objects.get(number=1)
    upload = core.Upload(bundle=bundle.pk, offset=0, size=len(CONTENT), sha256=SHA256, age=0)
    services.take(node.cluster, node.name, upload, CONTENT, now=now)
    section = {"name": "lspci -nnvv", "status": "missing", "seconds": 0.0, "bytes": 0, "note": "install pciutils"}
    Command.objects.filter(key=f"evidence-{found.pk}-1").update(output={"sections": [section]}, state="done")
    return found


def test_the_list_has_hash_size_and_sections(viewer: Api, rescue: Rescue) -> None:
    first, second = viewer.get(f"rescues/{rescue.pk}/evidence").json()["results"]
    assert (first["n"], first["state"], first["sha256"], first["size"]) == (1, "kept", SHA256, len(CONTENT))
    assert [section["status"] for section in first["sections"]] == ["missing"]
    assert first["url"].endswith(f"/api/v1/rescues/{rescue.pk}/evidence/1")
    assert (second["n"], second["state"], second["url"], second["sections"]) == (2, "requested", None, [])


def test_the_download_equals_the_agents_upload(viewer: Api, rescue: Rescue) -> None:
    answer = viewer.get(f"rescues/{rescue.pk}/evidence/1")
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer["Content-Type"] == "application/gzip"
    assert answer["Content-Disposition"] == f'attachment; filename="rescue-{rescue.pk}-evidence-1.log.gz"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["ETag"] == f'"{SHA256}"'


def test_downloads_are_recorded_and_bounded(viewer: Api, rescue: Rescue) -> None:
    for _ in range(concurrency_limits.EXPORT_STARTS.per_person):
        assert viewer.get(f"rescues/{rescue.pk}/evidence/1").status_code == 200
    assert problem(viewer.get(f"rescues/{rescue.pk}/evidence/1"), 429)["code"] == "places_own_taken"
    found = Entry.objects.filter(verb="evidence.read")
    assert found.count() == concurrency_limits.EXPORT_STARTS.per_person
    assert (found[0].cluster, found[0].node, found[0].rescue) == (rescue.cluster.name, rescue.node.name, None)
    assert (found[0].data["of_rescue"], found[0].data["sha256"]) == (rescue.pk, SHA256)
    assert found[0].actor.startswith("token:")


def test_headers_alone_are_no_download(viewer: Api, rescue: Rescue) -> None:
    path = f"rescues/{rescue.pk}/evidence/1"
    for _ in range(concurrency_limits.EXPORT_STARTS.per_person + 1):
        answer = viewer.call("head", path)
        assert (answer.status_code, answer.content, answer["ETag"]) == (200, b"", f'"{SHA256}"')
        assert answer["Content-Length"] == str(len(CONTENT))
    assert not Entry.objects.filter(verb="evidence.read").exists()
    assert viewer.get(path)["Content-Length"] == str(len(CONTENT))
    assert Entry.objects.filter(verb="evidence.read").count() == 1


def test_missing_evidence_is_not_found(viewer: Api, rescue: Rescue, now: datetime) -> None:
    for number in (2, 3):
        assert problem(viewer.get(f"rescues/{rescue.pk}/evidence/{number}"), 404)["code"] == "no_evidence"
    services.prune(now=now + timedelta(days=400))
    problem(viewer.get(f"rescues/{rescue.pk}/evidence/1"), 404)
    assert viewer.get(f"rescues/{rescue.pk}/evidence").json()["results"][0]["state"] == "deleted"


def test_only_callers_who_see_the_rescue_see_its_evidence(rescue: Rescue, west: Cluster, now: datetime) -> None:
    other = caller("viewer", now, cluster=west)
    for path in ("evidence", "evidence/1"):
        problem(other.get(f"rescues/{rescue.pk}/{path}"), 404)
        problem(Api().get(f"rescues/{rescue.pk}/{path}"), 401)


def test_the_page_of_the_rescue_offers_it(rescue: Rescue, now: datetime) -> None:
    user = accounts.make_user("vera", password="correct horse battery", role="viewer", created_by="test", now=now)
    client = Client()
    client.force_login(user)
    page = client.get(f"/rescues/{rescue.pk}/").content.decode()
    assert f'href="/api/v1/rescues/{rescue.pk}/evidence/1"' in page
    assert f'href="/api/v1/rescues/{rescue.pk}/evidence/2"' not in page
    assert SHA256 in page
    assert 'data-state="evidence_section:missing"' in page
