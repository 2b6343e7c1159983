"""Keys in addresses are shown to nobody: not in REST, not in pages, not in the audit log."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.ledger import signatures
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.api.conftest import Api, add_story, person, problem
from tests.portal.rescue.world import HEAL, World

TEXT = """apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: tell}
spec:
  rules:
    - priority: 1
      errorCode: ["79"]
      actions:
        - name: webhook
          attribute: {url: "https://x.example/a?k=SECRET%s"}
"""


@pytest.fixture
def policy(db: None, now: datetime) -> None:
    services.apply(TEXT % "", author="test", reason="", now=now)
    services.apply(TEXT % "2", author="test", reason="", now=now)


def test_addresses_in_policies_are_masked(policy: None, admin: Api) -> None:
    paths = ("policies", "policies/tell", "policies/tell/revisions", "policies/tell/diff", "audit")
    answers = [admin.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    assert not any(b"SECRET" in answer.content for answer in answers)
    assert "https://x.example/a?…" in answers[1].json()["text"]
    pages = [admin.client.get(path) for path in ("/policies/tell/", "/policies/tell/diff/", "/audit/")]
    assert {page.status_code for page in pages} == {200}
    assert [line for page in pages for line in page.content.decode().splitlines() if "SECRET" in line] == []
    assert "SECRET" not in str([entry.data for entry in Entry.objects.all()])


@pytest.mark.django_db
def test_addresses_in_decisions_are_masked(node: Node, admin: Api, now: datetime) -> None:
    add_story(node, now)
    args = {"url": "https://x.example/a?k=SECRET"}
    step = {"name": "webhook", "args": args}
    Decision.objects.update(steps=[step], facts={"given": [{"rule": {"actions": [{"attribute": args}]}}]})
    pk = Decision.objects.get().pk
    answers = [admin.get(path) for path in ("decisions", f"decisions/{pk}")]
    answers += [admin.client.get(f"/export/decisions.{shape}") for shape in ("csv", "jsonl")]
    texts = [b"".join(answer) if answer.streaming else answer.content for answer in answers]
    assert not any(b"SECRET" in text for text in texts)
    assert b"https://x.example/a?\\u2026" in texts[1] or "https://x.example/a?…".encode() in texts[1]


@pytest.mark.django_db
def test_a_proof_with_a_key_requires_the_right_to_change_policies(
    viewer: Api, admin: Api, now: datetime, tmp_path: Path, settings: Any
) -> None:
    settings.KCOVER_SIGNING_KEY = tmp_path / "key.pem"
    signatures.create_key(settings.KCOVER_SIGNING_KEY)
    world = World(policy=HEAL)
    services.apply(TEXT % "", author="test", reason="", now=now)  # in force, so each proof states it
    world.fault(62)
    world.work()
    world.uninstall()
    path = f"rescues/{Rescue.objects.get().pk}/proof"
    assert b"SECRET" in admin.get(path).content
    assert problem(viewer.get(path), 403)["code"] == "proof_with_key"
    local = person("lou", "admin", now, cluster=world.cluster)
    assert problem(local.get(path), 403)["code"] == "proof_with_key"


def test_a_masked_text_cannot_be_published(policy: None, admin: Api) -> None:
    text = admin.get("policies/tell").json()["text"]
    refused = admin.call("put", "policies/tell", text=text)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["code"] == "address_masked"


def test_a_query_in_an_address_is_warned_of(db: None) -> None:
    assert [warning.reason.code for warning in services.validate(TEXT % "").warnings] == ["address_with_key"]


@pytest.mark.django_db
def test_addresses_in_cluster_settings_are_masked(east: Cluster, admin: Api, now: datetime) -> None:
    url = "https://x.example/decide?k=SECRET"
    cluster_settings.set_cluster(east, {"decision_url": url}, actor="test", reason="", now=now)
    assert admin.get("clusters/east").json()["decision_url"] == "https://x.example/decide?…"
    assert "SECRET" not in str(Entry.objects.get(verb="cluster.changed").data)
    given: dict[str, Any] = {"decision_url": "https://x.example/decide?…"}
    with pytest.raises(FieldError) as refused:
        cluster_settings.set_cluster(east, given, actor="test", reason="", now=now)
    assert refused.value.reason.code == "address_masked"


@pytest.mark.django_db
def test_a_decision_secret_has_at_least_16_characters(east: Cluster, now: datetime) -> None:
    for secret in ("a", "x" * 15, "x" * 201):
        with pytest.raises(FieldError) as refused:
            cluster_settings.set_cluster(east, {"decision_secret": secret}, actor="test", reason="", now=now)
        assert refused.value.reason.code == "secret_length"
