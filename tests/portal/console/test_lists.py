"""Lists: one vocabulary of states, problems with the address, known values of filters, order and columns."""

import itertools
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from kcover_portal.console import lists, presentation
from kcover_portal.console.reads import saved_views
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from kcover_portal.shared_reads import node_status
from tests.portal.rescue.world import World
from tests.share import in_share

QUERIES = 29  # of the page of nodes with all of its filters
LISTS = ("/nodes/", "/incidents/", "/occurrences/", "/decisions/", "/rescues/", "/audit/", "/repairs/", "/parts/")


def names(response) -> list[str]:
    return [row[0].name for row in response.context["rows"]]


def problems(response) -> list[tuple[str, str]]:
    return [(problem.name, problem.reason.code) for problem in response.context["found"].problems]


@pytest.fixture
def fleet(world: World) -> World:
    """A node of each kind: healthy, cordoned, not ready, without GPUs, not in the cluster, removed."""
    usual = {"cluster": world.cluster, "created_at": world.now, "in_cluster": True, "ready": True, "gpus": 8}
    more = {"pool": "red", "model": "H100", "driver": "550.1", "labels": {"zone": "a", "kubernetes.io/hostname": "n1"}}
    for name, change in (
        ("n1", {**more, "unschedulable": True}),
        ("n2", {"ready": False, "gpus": 4}),
        ("n3", {"gpus": 0, "ready": False}),
        ("n4", {"in_cluster": False}),
        ("n5", {"gone_at": world.now}),
    ):
        Node.objects.create(**{**usual, "name": name, **change})
    return world


def test_nodes_with_trouble_come_first_and_those_without_gpus_last(person, fleet: World):
    client = person("viewer")
    assert names(client.get("/nodes/")) == ["n2", "n4", "gpu-1", "n1", "n3"]
    fleet.fault(74)
    assert names(client.get("/nodes/")) == ["gpu-1", "n2", "n4", "n1", "n3"]
    assert names(client.get("/nodes/?sort=name")) == ["gpu-1", "n1", "n2", "n3", "n4"]


def test_faults_of_nodes_come_before_later_ones_of_programs(person, world: World):
    for code in (74, 31, 43):
        world.fault(code)
    client = person("viewer")
    assert [row.code for row in client.get("/incidents/").context["page"]] == ["74", "43", "31"]
    assert [row.code for row in client.get("/incidents/?sort=fault").context["page"]] == ["31", "43", "74"]


def test_the_node_list_filters_by_the_states_of_its_column(person, fleet: World):
    client = person("viewer")
    words = [*node_status.STATUSES, *node_status.OFF_THE_MAP]
    shown = Counter()
    for word in words:
        page = client.get("/nodes/", {"status": word})
        assert {row[3] for row in page.context["rows"]} <= {word}
        shown[word] = len(page.context["rows"])
    assert +shown == {"healthy": 1, "cordoned": 1, "not-ready": 1, "other": 1, "unknown": 1, "gone": 1}
    assert "Not ready" in client.get("/nodes/", {"status": "other"}).content.decode()


def test_the_rescue_list_filters_by_the_states_of_its_column(person, world: World):
    expected = {
        "approval": {"state": "held", "hold": "approval", "needs_human": True},
        "people": {"state": "held", "needs_human": True},
        "held": {"state": "held"},
        "running": {"state": "running"},
        "waiting": {"state": "waiting"},
        "succeeded": {"state": "succeeded", "closed_at": world.now},
        "failed": {"state": "failed", "closed_at": world.now, "needs_human": True},
        "cancelled": {"state": "cancelled", "closed_at": world.now},
    }
    for word, more in expected.items():
        node = Node.objects.create(cluster=world.cluster, name=word, created_at=world.now)
        Rescue.objects.create(cluster=world.cluster, node=node, origin="manual", opened_at=world.now, **more)
    client = person("viewer")
    for word in expected:
        rows = client.get("/rescues/", {"status": word}).context["rows"]
        assert [(row["rescue"].node.name, row["state"]) for row in rows] == [(word, word)]
    assert set(expected) == set(needs_person.STATUSES) == set(presentation.RESCUE)
    rows = client.get("/rescues/?sort=state").context["rows"]
    assert [row["state"] for row in rows] == list(presentation.RESCUE)


@pytest.mark.parametrize("page", LISTS)
def test_a_parameter_without_effect_is_reported_and_disables_select_all(person, world: World, page: str):
    client = person("operator")
    found = client.get(page, {"bogus": "1", "cluster": "c1"})
    assert problems(found) == [("bogus", "unknown_parameter")]
    assert "<code>bogus=1</code>" in found.content.decode()
    assert "data-pick-matching" not in found.content.decode()
    assert problems(client.get(page, {"cluster": "c1", "page": "2"})) == []


@pytest.mark.parametrize("listing", [one for one in lists.LISTINGS.values() if one.table], ids=lambda one: one.name)
def test_a_list_is_sorted_by_its_columns_and_shows_those_that_are_chosen(person, world: World, listing):
    client = person("admin")
    pages = {**saved_views.PAGES, "deliveries": "console:notifications"}
    page = reverse(pages.get(listing.name, f"console:{listing.name}"))
    ordered = [column.name for column in listing.table if column.order]
    for number, sort in enumerate(itertools.product(("", "-"), ordered)):
        if in_share(number, shares=2):
            found = client.get(page, {"sort": "".join(sort)})
            assert (found.status_code, problems(found)) == (200, []), sort
    chosen = next(column for column in listing.table if not column.always)
    shown = client.get(page, {"columns": chosen.name}).context["found"].columns
    assert shown == [column.name for column in listing.table if column.always or column is chosen]


@pytest.mark.parametrize("page", ["/safety/", "/jobs/", "/reports/", "/policies/", "/approvals/", "/nodes/c1/gpu-1/"])
def test_a_page_without_a_list_names_unknown_parameters(person, world: World, page: str):
    client = person("operator")
    assert "<code>bogus=1</code>" in client.get(page, {"bogus": "1"}).content.decode()
    assert "have no effect" not in client.get(page).content.decode()


@pytest.mark.parametrize(
    ("page", "query", "code"),
    [
        ("/incidents/", {"since": "garbage"}, "parameter_not_time"),
        ("/incidents/", {"since": "99999999day"}, "parameter_not_time"),
        ("/incidents/", {"state": "opne"}, "parameter_not_choice"),
        ("/nodes/", {"sort": "nmae"}, "parameter_not_choice"),
        ("/nodes/", {"columns": "colour"}, "parameter_not_choice"),
        ("/nodes/", {"page": "x"}, "parameter_not_number"),
        ("/rescues/", {"tab": "x"}, "parameter_not_choice"),
        ("/rescues/", {"incident": "x"}, "parameter_not_number"),
    ],
)
def test_an_impossible_filter_value_is_reported(person, world: World, page: str, query, code: str):
    assert problems(person("viewer").get(page, query)) == [(next(iter(query)), code)]


def test_bulk_actions_and_exports_refuse_invalid_filters(person, world: World):
    client = person("operator")
    for query in ({"all": "1", "bogus": "1"}, {"all": "1", "status": "no-such"}):
        asked = client.get("/many/nodes/cordon/", query)
        assert (asked.status_code, asked.context["number"]) == (422, 0)
        assert [problem.name for problem in asked.context["problems"]] == [[*query][1]]
    assert client.get("/many/nodes/cordon/", {"all": "1"}).context["number"] == 1
    assert client.get("/export/nodes.csv", {"bogus": "1"}).status_code == 400
    assert client.get("/maintenance/new/", {"all": "1", "bogus": "1"}).context["form"].initial.get("which", "") == ""


def test_a_period_is_given_as_a_duration_back_from_now(person, world: World):
    for number, hours in enumerate((1, 30, 24 * 20)):
        at = timezone.now() - timedelta(hours=hours)
        more = {"kind": "xid", "code": f"{60 + number}", "opened_at": at, "last_at": at, "state": "closed"}
        Incident.objects.create(cluster=world.cluster, node=world.node(), **more)
    client = person("viewer")
    for since, number in (("2h", 1), ("24 hours", 1), ("7day", 2), ("30day", 3)):
        assert client.get("/incidents/", {"since": since}).context["page"].paginator.count == number, since
    token = client.get("/api/v1/incidents", {"since": "24h"})
    assert len(token.json()["results"]) == 1
    assert client.get("/api/v1/incidents", {"since": "garbage"}).status_code == 400


def test_filters_offer_the_values_that_the_portal_knows_within_the_scope(person, fleet: World):
    other = Cluster.objects.create(name="other", created_at=fleet.now)
    Node.objects.create(cluster=other, name="x", created_at=fleet.now, pool="secret", labels={"secret": "1"}, gpus=1)
    page = person("viewer", cluster=fleet.cluster).get("/nodes/")
    fields = {field["name"]: [value for value, _label in field["choices"]] for field in page.context["form"]}
    assert (fields["pool"], fields["model"], fields["driver"]) == (["red"], ["H100"], ["550.1"])
    assert fields["label"] == ["kubernetes.io/hostname=n1", "zone=a"]
    assert fields["cluster"] == ["c1"]
    assert "79" in fields["code"]
    assert "secret" not in page.content.decode()


def test_each_filter_that_is_set_has_a_link_that_removes_it(person, world: World):
    page = person("viewer").get("/incidents/?state=open&gpu=GPU-1&since=24h&page=1&sort=-count").content.decode()
    assert 'href="?gpu=GPU-1&amp;since=24h&amp;sort=-count"' in page
    assert 'href="?state=open&amp;since=24h&amp;sort=-count"' in page
    assert 'href="?state=open&amp;gpu=GPU-1&amp;sort=-count"' in page


def test_nodes_are_sorted_by_any_column_and_show_the_chosen_ones(person, fleet: World):
    client = person("viewer")
    Incident.objects.create(
        cluster=fleet.cluster,
        node=Node.objects.get(name="n2"),
        kind="xid",
        code="79",
        opened_at=fleet.now,
        last_at=fleet.now,
    )
    assert names(client.get("/nodes/?sort=state")) == ["n2", "n1", "n4", "gpu-1", "n3"]
    assert names(client.get("/nodes/?sort=-state")) == ["n3", "gpu-1", "n4", "n1", "n2"]
    assert names(client.get("/nodes/?sort=-faults"))[0] == "n2"
    assert names(client.get("/nodes/?sort=gpus"))[:2] == ["n3", "n2"]
    page = client.get("/nodes/?columns=driver&columns=pool")
    assert page.context["found"].columns == ["name", "pool", "driver"]
    assert "550.1" in page.content.decode()
    assert "550.1" not in client.get("/nodes/?columns=pool", headers={"HX-Request": "true"}).content.decode()
    for path, columns in (("/rescues/", "state policy closed"), ("/incidents/", "severity gpu opened")):
        for name in client.get(path).context["found"].listing.table:
            if name.order:
                assert client.get(path, {"sort": f"-{name.name}", "columns": columns.split()}).status_code == 200


def test_a_list_costs_the_same_for_one_row_and_for_three(person, world: World):
    client = person("viewer")
    costs = []
    for number in (1, 3):
        while Node.objects.count() < number:
            world.kube.add_node(f"gpu-{Node.objects.count() + 1}", gpus=8)
            world.sync()
        with CaptureQueriesContext(connection) as queries:
            client.get("/nodes/?sort=state&columns=driver")
        costs.append(len(queries))
    assert costs == [QUERIES, QUERIES]
