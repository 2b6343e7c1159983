"""The strip of a node's last 30 days: where its marks lead, and who may follow them."""

import re
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from kcover_portal.checks.models import Validation
from kcover_portal.console.reads import node_strip
from kcover_portal.incidents.models import Incident
from tests.portal.api.conftest import add_story
from tests.portal.api.test_node_history import add_past, day_of
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


def cells(world: World, *, sees_cluster: bool = True) -> dict[str, list[tuple[int, str, str]]]:
    strip = node_strip.of(world.node(), sees_cluster=sees_cluster, now=timezone.now())
    return {
        f"{row.name} {look.icon}": [(cell.count, cell.look.icon, cell.page) for cell in marks]
        for row in strip.rows
        for look, marks in row.kinds
    }


def test_a_single_mark_leads_to_its_record_and_a_burst_to_its_list(world: World) -> None:
    at = day_of(timezone.now(), 20)
    rescue = add_past(world.node(), at)
    incident = Incident.objects.get()
    found = cells(world)
    assert found["Node heart-rate-monitor"] == [(1, "heart-rate-monitor", f"/rescues/{rescue.pk}/")]
    assert found["Node user"] == [(1, "user", f"/rescues/{rescue.pk}/")]
    assert found["Node shield-check"] == [(2, "circle-x", f"/checks/validations/{Validation.objects.get().pk}/")]
    assert cells(world, sees_cluster=False)["Node shield-check"] == [(2, "circle-x", "")]
    assert found["Node alert-circle"] == [(1, "alert-circle", f"/incidents/{incident.pk}/")]
    add_story(world.node(), at + timedelta(minutes=1), code="79", state="cancelled")
    [(count, _icon, page)] = cells(world)["Node alert-circle"]
    parts = urlsplit(page)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (count, parts.path, query["cluster"], query["node"]) == (2, "/incidents/", "c1", "gpu-1")
    assert datetime.fromisoformat(query["since"]) <= at < datetime.fromisoformat(query["until"])


def test_each_mark_of_the_page_leads_to_a_page(person, world: World) -> None:
    for day in (3, 20):
        add_past(world.node(), day_of(timezone.now(), day))
    client = person("viewer")
    page = client.get("/nodes/c1/gpu-1/").content.decode()
    marks = re.findall(r'class="strip-mark [^"]*"\s+id="([^"]*)"\s+href="([^"]*)"', page)
    assert len(marks) == len({name for name, _page in marks}) == 12
    assert {client.get(target.replace("&amp;", "&")).status_code for _name, target in marks} == {200}
    assert "style=" not in page


def test_a_node_without_records_shows_so(person, world: World) -> None:
    page = person("viewer").get("/nodes/c1/gpu-1/").content.decode()
    assert "No faults, rescues, acts, proofs or repairs in this time." in page
    assert "strip-mark" not in page
