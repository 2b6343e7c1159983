"""Logs: the newest or the oldest entries first, in pages that do not shift, with the columns that people choose."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.test import Client

from kcover_portal.console.views import audit, notifications
from kcover_portal.ledger.models import Entry
from kcover_portal.notify.models import Delivery
from kcover_portal.rescue.models import Decision
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
LOGS: dict[str, tuple[str, type[Any], Any]] = {
    "audit": ("/audit/", Entry, audit),
    "deliveries": ("/notifications/", Delivery, notifications),
}


def entries(world: World, name: str, number: int) -> None:
    if name == "deliveries":
        for at in range(Delivery.objects.count(), number):
            Delivery.objects.create(name=f"c-{at}", key=uuid.uuid4(), state="sent", opened_at=world.now, test=True)
        return
    while Entry.objects.count() < number:
        world.fault(62)
        world.work()
        world.pass_time(60)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for _page, _model, view in LOGS.values():
        monkeypatch.setattr(view, "PAGE_ROWS", 2)


def walk(client: Client, page: str, query: str, edge: str) -> list[list[int]]:
    """The keys on each page from the first one on."""
    found, more = [], ""
    while len(found) < 9:
        log = client.get(f"{page}?{query}{more}").context["log"]
        found.append([row.pk for row in log.rows])
        if log.edge is None:
            return found
        more = f"&{edge}={log.edge}"
    return found


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_from_either_end(person: Person, world: World, name: str) -> None:
    page, model, _view = LOGS[name]
    client = person("admin")
    entries(world, name, 5)
    keys = list(model.objects.order_by("pk").values_list("pk", flat=True))
    down, up = walk(client, page, "sort=-at", "before"), walk(client, page, "sort=at", "after")
    assert [key for part in up for key in part] == keys[: sum(map(len, up))]
    assert [key for part in down for key in part] == keys[::-1][: sum(map(len, down))]
    assert walk(client, page, "", "before") == down
    assert all(len(part) <= 2 for part in (*up, *down))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", LOGS)
def test_a_page_keeps_its_entries_while_new_ones_arrive(person: Person, world: World, name: str) -> None:
    page, model, _view = LOGS[name]
    client = person("admin")
    entries(world, name, 5)
    first = client.get(f"{page}?sort=at").context["log"]
    second = [row.pk for row in client.get(f"{page}?sort=at&after={first.edge}").context["log"].rows]
    entries(world, name, model.objects.count() + 1)
    assert [row.pk for row in client.get(f"{page}?sort=at&after={first.edge}").context["log"].rows] == second
    assert (first.live, client.get(page).context["log"].live) == (False, True)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_what_has_no_effect(person: Person, world: World, name: str) -> None:
    page = LOGS[name][0]
    client = person("admin")
    for query, problem in (
        ("sort=actor", "sort"),
        ("columns=x", "columns"),
        ("after=x", "after"),
        ("before=x", "before"),
    ):
        found = client.get(f"{page}?{query}").context["found"]
        assert [one.name for one in found.problems] == [problem], query


@pytest.mark.parametrize(
    ("name", "column", "kept", "gone"),
    [("audit", "actor", "action", "target"), ("deliveries", "state", "message", "result")],
)
def test_a_log_shows_the_chosen_columns(
    person: Person, world: World, name: str, column: str, kept: str, gone: str
) -> None:
    page = LOGS[name][0]
    entries(world, name, 1)
    found = person("admin").get(f"{page}?columns={column}")
    assert set(found.context["found"].columns) == {column, kept}
    labels = {one.name: f'data-label="{one.label}"' for one in found.context["found"].listing.table}
    text = found.content.decode()
    assert (labels[kept] in text, labels[column] in text, labels[gone] in text) == (True, True, False)


@pytest.mark.parametrize("number", [1, 3])
def test_more_entries_take_no_more_statements(
    person: Person, world: World, django_assert_num_queries: Callable[[int], Any], number: int
) -> None:
    client = person("admin")
    entries(world, "deliveries", number)
    client.get("/notifications/")
    for query in ("", "?sort=at"):
        with django_assert_num_queries(13):
            client.get(f"/notifications/{query}")


def test_decisions_are_read_from_either_end_and_show_the_chosen_parts(person: Person, world: World) -> None:
    for code in (62, 63, 64):
        world.fault(code)
        world.work()
    client = person("viewer")
    newest: Sequence[int] = list(Decision.objects.order_by("-pk").values_list("pk", flat=True))
    assert [row.pk for row in client.get("/decisions/").context["page"].object_list] == newest
    found = client.get("/decisions/?sort=at&columns=rule")
    assert [row.pk for row in found.context["page"].object_list] == newest[::-1]
    assert f'id="tried-{newest[0]}"' not in found.content.decode()
    assert "sort=at" in client.get("/decisions/").content.decode()
