"""A person bound to one pool sees and changes nothing of another, by any page, REST endpoint, export or socket."""

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management.color import no_style
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from kcover_portal.accounts import queries, services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.fleet.models import Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import doorbell
from kcover_portal.parts.models import Part, Placement
from kcover_portal.preflight.models import PreflightRun
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.console import pools
from tests.portal.console.pools import OURS, SECRET, THEIRS, TwoPools, body_of
from tests.portal.console.test_live import Socket
from tests.share import in_share

pytestmark = pytest.mark.django_db

LISTS_WITH_OURS = {
    *("console:nodes", "console:incidents", "console:occurrences", "console:decisions", "console:rescues"),
    *(
        "console:approvals",
        "console:repairs",
        "console:parts",
        "console:overview",
        "console:map",
        "console:map-table",
        "console:audit",
    ),
    *("api:nodes", "api:gpus", "api:checks", "api:incidents", "api:occurrences", "api:decisions", "api:rescues"),
    *("api:approvals", "api:repairs", "api:parts", "api:placements", "api:audit", "api:needs-person"),
}
SHARES = 2  # of the addresses
OPEN_TO_ALL = {"api:schema", "api:docs", "console:approve"}


@pytest.fixture
def low_keys(db: None) -> None:
    """Keys begin at 1 in each table again: few keys name all rows, and the walk over all addresses is short."""
    models = (Incident, Rescue, Node, Approval, CheckRun, Validation, PreflightRun, Maintenance, Repair)
    models += (Part, Placement)
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), models):
            cursor.execute(statement)


@pytest.fixture
def two(db: None, now: datetime) -> TwoPools:
    return pools.make(now)


@pytest.fixture
def viewer(two: TwoPools, now: datetime) -> Client:
    return pools.bound("vera", "viewer", two.cluster, "red", now)[1]


@pytest.fixture
def operator(two: TwoPools, now: datetime) -> Client:
    return pools.bound("otto", "approver", two.cluster, "red", now)[1]


def doors() -> Iterator[tuple[str, str]]:
    """(name, route) of every address of pages and REST."""
    yield from _doors(get_resolver(), "", "")


def _doors(resolver: URLResolver, names: str, path: str) -> Iterator[tuple[str, str]]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            yield from _doors(
                pattern, f"{pattern.namespace}:" if pattern.namespace else names, path + str(pattern.pattern)
            )
        elif isinstance(pattern, URLPattern) and hasattr(pattern.pattern, "_route"):
            yield f"{names}{pattern.name}", f"/{path}{pattern.pattern}"


def keys_about(two: TwoPools, node: str) -> list[str]:
    """The keys of all rows of the node and of rows of the cluster."""
    rows = [*Incident.objects.filter(node__name=node), *Rescue.objects.filter(node__name=node)]
    rows += Repair.objects.filter(node__name=node)
    rows += Part.objects.filter(placements__node__name=node)
    rows += [Node.objects.get(name=node), *two.rescues[node].approvals.all(), *two.whole.values()]
    return [str(pk) for pk in {row.pk for row in rows}]


def addresses(route: str, node: str, keys: list[str]) -> Iterator[str]:
    """The addresses of a route that are about the node, each with each of the keys."""
    named = "kcover" if "/packs/" in route else node  # a pack's refusal repeats the name that was asked for
    words = {"<slug:cluster>": ["c1"], "<str:name>": [named], "<slug:verb>": ["drain", "cancel", "approve"]}
    names = _listings() if "<slug:shape>" in route or "<slug:verb>" in route else ["c1"]
    words |= {"<slug:guard>": ["storm"], "<slug:name>": names, "<slug:shape>": ["csv", "jsonl"]}
    words |= {"<slug:kind>": ["slack"], "<slug:public_id>": ["x"], "<str:token>": ["x"]}
    words |= {"<slug:table>": ["groups", "lemons"]}
    words["<int:pk>"] = keys
    found = [route]
    for word, values in words.items():
        found = [one.replace(word, value) for one in found for value in (values if word in one else [""])]
    yield from dict.fromkeys(re.sub("<[^>]*>", node, address) for address in found)


def _listings() -> list[str]:
    return [
        *("nodes", "incidents", "occurrences", "decisions", "rescues", "audit", "revisions", "deliveries"),
        *("check-runs", "validations", "preflight-runs", "preflight-plans", "repairs", "placements"),
    ]


def test_no_door_shows_anything_of_another_pool(low_keys: None, two: TwoPools, viewer: Client) -> None:
    walked, keys = 0, {node: keys_about(two, node) for node in (OURS, THEIRS)}
    for number, (name, route) in enumerate(doors()):
        if name in OPEN_TO_ALL or not name.startswith(("console:", "api:")) or not in_share(number, shares=SHARES):
            continue
        for address in {one: None for node in keys for one in addresses(route, node, keys[node])}:
            shown = body_of(viewer.get(address)).replace(address, "")
            assert SECRET not in shown.replace(THEIRS if "search" in address else "\0", ""), (address, shown)
            walked += 1
        if name in LISTS_WITH_OURS:
            assert OURS in body_of(viewer.get(next(addresses(route, OURS, keys[OURS])))), name
    assert walked > 300 // SHARES


@pytest.mark.parametrize("path", ["/search/?q=theirs-99", "/search/found.json?q=theirs", "/nodes/?q=ours&pool=blue"])
def test_searching_finds_no_node_of_another_pool(path: str, viewer: Client) -> None:
    answer = viewer.get(path)
    assert "/nodes/c1/theirs" not in body_of(answer)
    assert f"/nodes/c1/{OURS}" in body_of(viewer.get("/search/found.json?q=ours"))


def test_filters_do_not_reveal_hidden_rows(two: TwoPools, viewer: Client) -> None:
    for path in ("nodes?q=theirs", "incidents?node=theirs-99", "rescues?node=theirs-99", "audit?node=theirs-99"):
        answer = viewer.get(f"/api/v1/{path}")
        assert answer.status_code == 400 or answer.json()["results"] == [], path


def test_an_operator_of_a_pool_acts_on_its_nodes_only(two: TwoPools, operator: Client) -> None:
    for node, status in ((OURS, 201), (THEIRS, 404)):
        Rescue.objects.filter(node=two.nodes[node]).update(state="cancelled")
        for rest in (f"nodes/c1/{node}/cordon",):
            answer = operator.post(f"/api/v1/{rest}", {"reason": "x"}, content_type="application/json")
            assert answer.status_code == status, answer.content
    for page in (f"/nodes/c1/{THEIRS}/cordon/", f"/incidents/{two.incidents[THEIRS].pk}/close/"):
        assert operator.post(page, {"reason": "x"}).status_code == 404
    assert operator.post(f"/incidents/{two.incidents[OURS].pk}/close/", {"reason": "x"}).status_code == 302


def test_a_bulk_action_reaches_only_rows_of_the_pool(two: TwoPools, operator: Client) -> None:
    picked = ",".join(str(node.pk) for node in two.nodes.values())
    shown = body_of(operator.get(f"/many/nodes/cordon/?picked={picked}"))
    assert OURS in shown
    assert SECRET not in shown


def test_an_approver_of_a_pool_answers_for_its_nodes_only(two: TwoPools, operator: Client) -> None:
    statuses = {
        node: operator.post(f"/api/v1/rescues/{two.rescues[node].pk}/reject", {"reason": "no"}, "application/json")
        for node in two.nodes
    }
    assert statuses[THEIRS].status_code == 404
    assert statuses[OURS].status_code != 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("patch", "clusters/c1", {"mode": "shadow"}),
        ("patch", "clusters/c1/guards", {"cooldown": 0}),
        ("post", "pause", {"cluster": "c1", "reason": "x"}),
        ("post", "pause", {"reason": "x"}),
        ("post", "maintenance", {"cluster": "c1", "starts_at": "2030-01-01", "ends_at": "2030-01-02", "reason": "x"}),
    ],
)
def test_settings_of_the_cluster_cannot_be_changed_from_a_pool(
    method: str, path: str, body: dict[str, Any], operator: Client
) -> None:
    answer = getattr(operator, method)(f"/api/v1/{path}", body, content_type="application/json")
    assert answer.status_code in (400, 403, 404), answer.content


def test_a_role_in_the_cluster_sees_both_pools(two: TwoPools, now: datetime) -> None:
    _, client = pools.bound("cleo", "viewer", two.cluster, "", now)
    shown = body_of(client.get("/nodes/"))
    assert OURS in shown
    assert THEIRS in shown
    assert "logs-of-theirs" in body_of(client.get("/system/"))


def test_a_node_that_leaves_the_pool_is_out_of_sight(two: TwoPools, viewer: Client) -> None:
    assert viewer.get(f"/nodes/c1/{OURS}/").status_code == 200
    Node.objects.filter(name=OURS).update(pool="green")
    assert viewer.get(f"/nodes/c1/{OURS}/").status_code == 404


def test_roles_of_several_places_add_up(two: TwoPools, now: datetime) -> None:
    user, _ = pools.bound("mia", "viewer", two.cluster, "", now)
    accounts.bind(user, "operator", cluster=two.cluster, pool="red", actor="test", now=now)
    who = User.objects.get(pk=user.pk)
    assert queries.may(who, "repair", two.nodes[OURS])
    assert not queries.may(who, "repair", two.nodes[THEIRS])
    assert queries.may(who, "read", two.nodes[THEIRS])
    assert not queries.may(who, "operator", two.cluster)
    assert not queries.may(who, "viewer", None)


def test_a_tokens_of_a_person_of_a_pool_sees_that_pool(two: TwoPools, now: datetime) -> None:
    user, _ = pools.bound("tia", "viewer", two.cluster, "red", now)
    _, secret = accounts.make_token("operator", owner=user, created_by="user:tia", now=now)
    answer = Client().get("/api/v1/nodes", headers={"Authorization": f"Bearer {secret}"})
    assert [row["name"] for row in answer.json()["results"]] == [OURS]


@pytest.mark.django_db(transaction=True)
async def test_a_page_of_a_pool_is_signalled_changes_without_row_ids(two: TwoPools, viewer: Client) -> None:
    doorbell.attach(asyncio.get_running_loop())
    socket = Socket(viewer)
    assert await socket.connect()
    await socket.hear()
    await socket.hear_of("")  # leaves out what was told of the fixtures
    await sync_to_async(doorbell.publish)("rescue", two.rescues[THEIRS].pk, cluster="c1")
    assert await socket.hear_of("rescue") == [{"t": "rescue", "id": 0}]
    await sync_to_async(doorbell.publish)("rescue", 7, cluster="another")
    assert await socket.hear_of("rescue") == []
    await socket.hang_up()


def alarms(client: Client) -> list[str]:
    return [alarm.text for alarm in client.get("/account/").context["banner"].alarms]


def test_a_window_of_all_clusters_names_only_nodes_of_the_pool(two: TwoPools, viewer: Client, now: datetime) -> None:
    hours = timedelta(hours=1)
    for more in ({"selection": {"nodes": [OURS, THEIRS]}}, {"node": THEIRS}):
        Maintenance.objects.create(cluster=None, starts_at=now - hours, ends_at=now + 10**5 * hours, **more)
    single, several = viewer.get("/api/v1/maintenance").json()["results"]
    assert (single["node"], single["scope"], several["scope"]) == ("", {}, {"nodes": [OURS]})
    storm, said = alarms(viewer)
    assert (OURS in said, THEIRS in said) == (True, False)
    assert THEIRS not in storm, "only that there is one"
    Maintenance.objects.filter(pk=two.whole["window"].pk).delete()
    Maintenance.objects.filter(node="").update(selection={"nodes": [THEIRS]})
    assert alarms(viewer) == [storm]
    _, client = pools.bound("wim", "viewer", two.cluster, "", now)
    assert any(THEIRS in said for said in alarms(client))
