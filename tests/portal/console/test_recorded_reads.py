"""Reads that take data out of the portal are in the audit log: exports, and addresses with their keys."""

from datetime import timedelta

import pytest

from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.runtime.models import Lease
from kcover_portal.runtime.services import concurrency_limits
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: tell}
spec:
  rules:
    - {priority: 1, errorCode: ["62"], actions: [{name: webhook, attribute: {url: "https://x.example/a%s"}}]}
"""


@pytest.mark.django_db(transaction=True)  # a streamed response closes the connection
def test_an_export_is_recorded_with_its_filters(person, world: World) -> None:
    client = person("viewer", name="vera")
    b"".join(client.get("/export/nodes.csv?q=gpu&page=3").streaming_content)
    entry = Entry.objects.get(verb="list.exported")
    assert (entry.actor, entry.subject, entry.cluster) == ("user:vera", "list nodes", "")
    assert (entry.data["shape"], entry.data["query"]) == ("csv", "q=gpu")


@pytest.mark.django_db(transaction=True)
def test_a_person_begins_a_few_exports_a_minute(person, world: World) -> None:
    client = person("viewer")
    for _ in range(concurrency_limits.EXPORT_STARTS.per_person):
        response = client.get("/export/nodes.csv")
        assert response.status_code == 200
        b"".join(response.streaming_content)
        response.close()
    refused = client.get("/export/nodes.csv")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "30")
    assert Entry.objects.filter(verb="list.exported").count() == concurrency_limits.EXPORT_STARTS.per_person
    rows = Lease.objects.filter(name__startswith="export start")
    rows.update(until=min(rows.values_list("until", flat=True)) - timedelta(minutes=2))
    assert client.get("/export/nodes.csv").status_code == 200


@pytest.mark.parametrize(("query", "entries"), [("?key=hush", 1), ("", 0)])
def test_a_key_that_the_editor_shows_is_recorded(person, world: World, query: str, entries: int) -> None:
    policies.apply(POLICY % query, author="user:ada", reason="", now=world.now)
    page = person("admin", name="ada").get("/policies/tell/edit/")
    assert f"https://x.example/a{query}" in page.content.decode()
    found = Entry.objects.filter(verb="secret.read")
    assert [(entry.actor, entry.subject) for entry in found] == [("user:ada", "policy tell")] * entries
    assert "hush" not in str([entry.data for entry in found])
