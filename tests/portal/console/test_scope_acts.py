"""Acts on the nodes of a scope: the picker leads to the preview of the act; and what the guards allow in a scope."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.accounts.models import RoleBinding, User
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import blocking_budgets
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
EXCLUDE, END = "/scopes/act/exclude/", "/scopes/act/end_exclusion/"
LABEL = "kcover.io/exclude"


@pytest.fixture
def fleet(make: Callable[..., World]) -> World:
    """Ten nodes, of which three are in pool a; one of these is excluded."""
    blocking_budgets.forget()
    world = make(nodes=10, policy="")
    world.now = timezone.now()
    Node.objects.filter(name__in=["gpu-1", "gpu-2", "gpu-3"]).update(pool="a")
    Node.objects.filter(name="gpu-3").update(labels={LABEL: "true"})
    return world


def scope(by: str, which: str) -> dict[str, str]:
    return {"cluster": "c1", "by": by, "which": which}


def test_a_scope_leads_to_the_preview_of_its_nodes_and_only_that_acts(person: Person, fleet: World) -> None:
    client = person("operator")
    page = client.get(EXCLUDE)
    assert 'hx-post="/scopes/line/"' in page.content.decode()
    preview = client.post(EXCLUDE, scope("pools", "a"), follow=True)
    assert [(hit.name, bool(hit.refusals)) for hit in preview.context["hits"]] == [
        *(("gpu-1", False), ("gpu-2", False), ("gpu-3", True))
    ]
    assert not Rescue.objects.exists()
    given = {name: preview.context[name] for name in ("picked", "once")} | {"reason": "ticket 7"}
    client.post("/many/nodes/exclude/", given)
    assert [(row.node.name, row.reason, row.steps.get().name) for row in Rescue.objects.order_by("pk")] == [
        ("gpu-1", "ticket 7", "exclude"),
        ("gpu-2", "ticket 7", "exclude"),
    ]


def test_many_exclusions_are_typed(person: Person, fleet: World) -> None:
    client = person("operator")
    preview = client.post(EXCLUDE, scope("nodes", ", ".join(f"gpu-{number}" for number in range(4, 11))), follow=True)
    given = {name: preview.context[name] for name in ("picked", "once")} | {"reason": "ticket 7"}
    assert client.post("/many/nodes/exclude/", given).status_code == 422
    assert not Rescue.objects.exists()
    assert client.post("/many/nodes/exclude/", given | {"name": "exclude 7"}).status_code == 200
    assert Rescue.objects.count() == 7


def test_the_excluded_nodes_are_the_scope_of_their_return(person: Person, fleet: World) -> None:
    client = person("approver")
    address = f"{END}?cluster=c1&by=labels&which={LABEL}%3Dtrue"
    page = client.get("/safety/").content.decode()
    assert address.replace("&", "&amp;") in page
    form = client.get(address).context["form"]
    assert [form[name].value() for name in ("cluster", "by", "which")] == ["c1", "labels", f"{LABEL}=true"]
    preview = client.post(END, scope("labels", f"{LABEL}=true"), follow=True)
    assert [(hit.name, hit.refusals) for hit in preview.context["hits"]] == [("gpu-3", [])]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (scope("", ""), "by"),
        (scope("pools", ""), "which"),
        (scope("pools", "b"), "which"),
        (scope("nodes", "gpu-1, gpu-99, x"), "which"),
        (scope("labels", "zone=z9"), "which"),
        (scope("", "gpu-1"), "by"),
        (scope("pools", "a") | {"cluster": "mars"}, "cluster"),
    ],
)
def test_a_scope_that_matches_nothing_is_said(person: Person, fleet: World, given: dict[str, str], field: str) -> None:
    answer = person("operator").post(EXCLUDE, given)
    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    assert not Rescue.objects.exists()


def test_more_nodes_than_an_act_may_have_are_refused(person: Person, fleet: World) -> None:
    rows = [
        Node(cluster=fleet.cluster, name=f"n-{n}", pool="p", in_cluster=True, created_at=fleet.now) for n in range(101)
    ]
    Node.objects.bulk_create(rows)
    answer = person("operator").post(EXCLUDE, scope("pools", "p"))
    assert (answer.status_code, list(answer.context["form"].errors)) == (422, ["which"])


def test_only_those_who_may_repair_select_nodes(person: Person, fleet: World) -> None:
    viewer = person("viewer")
    assert [viewer.get(EXCLUDE).status_code, viewer.post(EXCLUDE, scope("pools", "a")).status_code] == [403, 403]
    assert EXCLUDE not in viewer.get("/safety/").content.decode()
    west = Cluster.objects.create(name="west", created_at=fleet.now)
    other = person("operator", cluster=west)
    assert "cluster" in other.post(EXCLUDE, scope("pools", "a")).context["form"].errors
    local = person("viewer", name="lia")
    RoleBinding.objects.create(user=User.objects.get(username="lia"), role="operator", cluster=fleet.cluster, pool="a")
    preview = local.post(EXCLUDE, scope("nodes", "gpu-1, gpu-9"), follow=True)
    assert [(hit.name, bool(hit.refusals)) for hit in preview.context["hits"]] == [("gpu-1", False), ("gpu-9", True)]
    assert person("operator").get("/scopes/act/explode/").status_code == 404


def test_unknown_parameters_are_said(person: Person, fleet: World) -> None:
    client = person("operator")
    for page in (EXCLUDE, "/scopes/room/"):
        assert "bogus=1" in client.get(f"{page}?bogus=1").content.decode()
        assert "bogus=1" not in client.get(page).content.decode()


def test_the_room_of_a_scope_is_shown_to_everybody_who_sees_the_nodes(person: Person, fleet: World) -> None:
    client = person("viewer")
    assert "found" not in client.get("/scopes/room/").context
    fleet.kube.add_pod("web", "a-0", node="gpu-1", labels={"app": "a"})
    fleet.kube.add_budget("web", "keep", match={"app": "a"})
    found = client.get("/scopes/room/", scope("pools", "a")).context["found"]
    assert (found.nodes, found.budgets, found.headroom["exclusion"]) == (3, 1, 2)
    assert client.get("/scopes/room/", {"cluster": "c1", "by": "pools", "which": "b"}).context["unknown"] == "b"
    assert "found" not in client.get("/scopes/room/", {"cluster": "mars"}).context
    blocking_budgets.forget()
    fleet.kube.fail("budgets", port.RefusedByServer("forbidden"))
    assert client.get("/scopes/room/", scope("pools", "a")).context["found"].budgets is None


@pytest.mark.parametrize("names", ["gpu-4", "gpu-4, gpu-5, gpu-6"])
def test_a_wider_scope_takes_no_more_statements(
    person: Person, fleet: World, django_assert_num_queries: Callable[[int], Any], names: str
) -> None:
    client = person("operator")
    client.get("/scopes/room/", scope("nodes", "gpu-1"))
    with django_assert_num_queries(35):
        client.get("/scopes/room/", scope("nodes", names))
    with django_assert_num_queries(8):
        client.post(EXCLUDE, scope("nodes", names))
