"""The pages of the repair desk: the list, one repair with its history, and the dialogs."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover.repairs.repairs import Move, Part
from kcover_portal import needs_person
from kcover_portal.notify.models import OpenNeed
from kcover_portal.notify.services import collect
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair
from tests.portal.console.conftest import Person
from tests.portal.repairs.conftest import add_validation
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
NEW = "/repairs/new/c1/gpu-1/"
MINUTES = "%Y-%m-%dT%H:%M"
FORM = {"part_kind": "gpu", "part_slot": "3", "vendor": "ACME", "reason": "it sparks"}


def text(response: Any) -> str:
    found: str = response.content.decode()
    return found


def send(client: Client, path: str, **changes: str) -> Any:
    """Opens the dialog, changes some of its fields, and sends it."""
    form = client.get(path).context["form"]
    given = {name: form[name].value() or "" for name in form.fields}
    if due := given.get("due"):
        given["due"] = due.strftime(MINUTES)
    return client.post(path, {**given, "reason": "go on", **changes})


@pytest.fixture
def repair(world: World) -> Repair:
    now = timezone.now()
    return services.report(world.node(), part=Part(kind="gpu"), actor="user:ann", reason="it sparks", now=now)


def test_a_repair_is_reported_on_the_page_of_its_node(world: World, person: Person) -> None:
    operator = person("operator")
    assert NEW in text(operator.get("/nodes/c1/gpu-1/"))
    assert operator.get(NEW).status_code == 200
    made = operator.post(NEW, FORM)
    row = Repair.objects.get()
    assert (made.status_code, made.headers["Location"]) == (302, f"/repairs/{row.pk}/")
    assert (row.node_name, row.part, row.vendor) == ("gpu-1", Part(kind="gpu", slot="3"), "ACME")
    assert f"/repairs/{row.pk}/" in text(operator.get("/nodes/c1/gpu-1/"))
    again = operator.post(NEW, FORM)
    assert (again.status_code, list(again.context["form"].errors)) == (422, ["__all__"])


def test_other_open_repairs_of_the_machine_are_linked(world: World, person: Person, repair: Repair) -> None:
    operator, link = person("operator"), f'href="/repairs/{repair.pk}/"'
    assert link in text(operator.get(NEW))
    second = operator.post(NEW, {**FORM, "part_kind": "node"}).headers["Location"]
    assert link in text(operator.get(second))
    assert link not in text(operator.get("/repairs/new/c1/gpu-2/"))


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"reason": ""}, "reason"), ({"due": "2020-01-01T00:00"}, "due"), ({"part_kind": "pigeon"}, "part_kind")],
)
def test_an_error_is_shown_beside_its_field(world: World, person: Person, changes: dict[str, str], field: str) -> None:
    answer = person("operator").post(NEW, {**FORM, **changes})
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, [field])


def test_a_repair_is_taken_through_its_states(world: World, person: Person, repair: Repair) -> None:
    operator, page = person("operator", name="omar"), f"/repairs/{repair.pk}/"
    for verb, form in {
        "accept": {"due": (timezone.now() + timedelta(days=1)).strftime(MINUTES)},
        "hand-over": {"action": "replace"},
        "return": {"part_serial": "S-new"},
    }.items():
        assert f"{page}{verb}/" in text(operator.get(page))
        assert send(operator, f"{page}{verb}/", **form).status_code == 302, verb
    assert send(operator, f"{page}close/").status_code == 422
    add_validation(world.node(), at=timezone.now())
    assert send(operator, f"{page}close/").status_code == 302
    repair.refresh_from_db()
    assert (repair.state, repair.assignee, repair.action, repair.part_serial) == (
        "closed",
        "omar",
        "replace",
        "S-new",
    )
    shown = operator.get(page)
    assert [entry.verb for entry in shown.context["entries"]] == [
        "repair.closed",
        "repair.returned",
        "repair.in_repair",
        "repair.accepted",
        "repair.reported",
    ]
    assert shown.context["verbs"] == []
    assert "/change/" not in text(shown)


def test_a_change_of_details_keeps_an_untouched_date(world: World, person: Person, repair: Repair) -> None:
    due = timezone.now() - timedelta(days=1)
    Repair.objects.update(due=due, part_kind="pump")
    assert send(person("operator"), f"/repairs/{repair.pk}/change/", ticket="OPS-1").status_code == 302
    repair.refresh_from_db()
    assert (repair.ticket, repair.due, repair.part_kind) == ("OPS-1", due, "pump")


def test_roles_limit_the_repair_pages(world: World, person: Person, repair: Repair) -> None:
    viewer, page = person("viewer"), f"/repairs/{repair.pk}/"
    shown = text(viewer.get(page))
    assert f"{page}accept/" not in shown
    assert NEW not in text(viewer.get("/nodes/c1/gpu-1/"))
    for path in (NEW, f"{page}accept/", f"{page}change/"):
        assert viewer.get(path).status_code == 403
        assert viewer.post(path, {"reason": "x"}).status_code == 403
    assert person("operator").get(f"{page}explode/").status_code == 404
    assert person("operator").get("/repairs/new/c1/gpu-77/").status_code == 404


def test_the_list_filters_and_shows_overdue_repairs(world: World, person: Person, repair: Repair) -> None:
    viewer = person("viewer")
    assert f'id="repair-{repair.pk}"' in text(viewer.get("/repairs/?state=reported&q=gpu-1"))
    assert f'id="repair-{repair.pk}"' not in text(viewer.get("/repairs/?overdue=true"))
    Repair.objects.update(due=timezone.now() - timedelta(minutes=1))
    [(_row, need)] = viewer.get("/repairs/?overdue=true").context["rows"]
    assert need


def test_a_repair_that_is_late_is_on_the_first_page_and_announced(world: World, person: Person, repair: Repair) -> None:
    clusters, now = [world.cluster], timezone.now()
    assert needs_person.counts(clusters, now=now)["c1", "repair"] == 0
    late = now + timedelta(days=1)
    assert needs_person.counts(clusters, now=late)["c1", "repair"] == 1
    for seconds in (0, 61):
        collect.collect(now=late + timedelta(seconds=seconds))
    need = OpenNeed.objects.get()
    assert (need.kind, need.record, need.name, need.announced_at is not None) == (
        "repair",
        repair.pk,
        "gpu-1 gpu",
        True,
    )
    Repair.objects.update(due=now)
    assert f'href="/repairs/{repair.pk}/"' in text(person("viewer").get("/"))
    Repair.objects.update(due=late + timedelta(days=9), assignee="bo")
    for seconds in (70, 140):
        collect.collect(now=late + timedelta(seconds=seconds))
    assert not OpenNeed.objects.exists()


def test_a_returned_machine_offers_its_validation(world: World, person: Person, repair: Repair) -> None:
    for verb in (Move.ACCEPT, Move.HAND_OVER, Move.RETURN):
        services.act(repair, verb, actor="user:bo", reason="x", now=timezone.now())
    assert "/checks/validations/new/" in text(person("operator").get(f"/repairs/{repair.pk}/"))


def test_an_admin_sets_the_terms_of_a_vendor(world: World, person: Person) -> None:
    admin, page = person("admin"), "/repairs/terms/"
    assert page in text(admin.get("/repairs/"))
    assert send(admin, page, vendor="ACME", accept_days="2").status_code == 302
    assert admin.get(f"{page}?vendor=ACME").context["form"].initial["accept_days"] == 2
    assert send(admin, page, vendor="ACME", accept_days="0").status_code == 422
    operator = person("operator")
    assert "ACME" in text(operator.get("/repairs/"))
    assert page not in text(operator.get("/repairs/"))
    assert operator.get(page).status_code == 403
