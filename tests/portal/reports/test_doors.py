"""Reports over REST and on the console: the same figures, in the part of the fleet that somebody sees."""

import csv
import json
import re
from datetime import datetime, timedelta
from io import StringIO
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from kcover_portal.console.reads import report_figures
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.api.conftest import Api, add_node, caller, fields, person, problem
from tests.portal.console import pools

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="east", created_at=timezone.now() - 400 * DAY, gpu_hour_price="2.5")


def node(cluster: Cluster, name: str, pool: str = "red") -> Node:
    found = add_node(cluster, name, timezone.now(), pool=pool)
    Node.objects.filter(pk=found.pk).update(created_at=cluster.created_at, gpus=8, in_cluster=True)
    return found


def healed(of: Node, ago: timedelta, *, code: str = "79", outcome: str = "healed") -> Rescue:
    """A fault that is opened so long ago, isolated after 1 h, drained for 1 h and returned after 4 h."""
    at = timezone.now() - ago
    incident = Incident.objects.create(
        cluster=of.cluster,
        node=of,
        kind="xid",
        code=code,
        severity="fatal",
        device="0000:4e:00",
        state="closed",
        opened_at=at,
        last_at=at,
        closed_at=at + 4 * HOUR,
    )
    Occurrence.objects.create(incident=incident, node=of, source="kmsg", seen_at=at - timedelta(seconds=3), at=at)
    rescue = Rescue.objects.create(
        cluster=of.cluster,
        node=of,
        origin="policy",
        fault_kind="xid",
        fault_code=code,
        policy="gpu",
        rule="gpu#2",
        plan_hash="x",
        state="succeeded",
        outcome=outcome,
        opened_at=at,
        closed_at=at + 4 * HOUR,
    )
    rescue.incidents.add(incident)
    plan = (("cordon", 0, 1), ("drain", 1, 2), ("reboot", 2, 3), ("uncordon", 3, 4))
    for index, (name, begin, end) in enumerate(plan):
        times = {"started_at": at + begin * HOUR, "finished_at": at + end * HOUR}
        Step.objects.create(rescue=rescue, index=index, name=name, state="done", attempts=1, **times)
    return rescue


def test_the_figures_of_a_known_history(cluster: Cluster, now: datetime) -> None:
    healed(node(cluster, "gpu-1"), 2 * DAY)
    healed(node(cluster, "gpu-2", "blue"), 3 * DAY, code="48", outcome="isolated")
    healed(Node.objects.get(name="gpu-1"), 40 * DAY)
    api = caller("viewer", timezone.now())
    report = api.get("reports/reliability").json()
    period = report["period"]
    # 1 GPU for an hour before the isolation, then 8 for three hours; twice.
    assert (period["faults"], period["recovered"], period["gpu_hours_lost"], period["cost"]) == (2, 2, 50.0, "125.00")
    assert (period["recovery_median_seconds"], period["detection_median_seconds"]) == (4 * 3600, 3)
    assert (period["rescues"], period["succeeded"], period["automation"], period["isolations"]) == (2, 1, 1.0, 2)
    assert (period["reboots"], period["second_reboots"], period["second_reboot"]) == (2, 0, 0.0)
    assert period["hours_between_faults"] == pytest.approx(16 * 30 * 24 / 2, rel=0.001)
    assert (report["before"]["faults"], report["before"]["gpu_hours_lost"]) == (1, 25.0)
    lost = {row["key"]: row["gpu_hours_lost"] for row in report["phases"]}
    assert lost == {"move": 16.0, "repair": 16.0, "return": 16.0, "isolate": 2.0}
    assert {step["step"]: (step["done"], step["success"]) for step in report["steps"]}["cordon"] == (2, 1.0)
    for by, keys in {
        "code": {"xid 79", "xid 48"},
        "pool": {"east/red", "east/blue"},
        "part": {"gpu"},
        "policy": {"gpu"},
        "rule": {"gpu#2"},
        "cluster": {"east"},
    }.items():
        rows = api.get(f"reports/reliability?by={by}").json()["rows"]
        assert {row["key"] for row in rows} == keys
        assert (sum(row["faults"] for row in rows), sum(row["gpu_hours_lost"] for row in rows)) == (2, 50.0)
    assert sum(one["faults"] for one in report["trend"]) == 2
    past = api.get(
        f"reports/reliability?from={(timezone.now() - 50 * DAY).date()}&to={(timezone.now() - 10 * DAY).date()}"
    )
    assert past.json()["period"]["faults"] == 1


def test_invalid_report_periods_are_refused_by_field(cluster: Cluster) -> None:
    api = caller("viewer", timezone.now())
    for query, field in (
        ("by=color", "by"),
        ("from=yesterday", "from"),
        ("from=2026-02-30", "from"),
        ("from=2026-02-01&to=2026-01-01T00:00:00Z", "to"),
        ("from=2100-01-01", "from"),
        ("from=1990-01-01", "from"),
        ("from=2001-01-01", "from"),
        ("to=0001-01-01T00:00:00Z", "to"),
        ("since=2026-01-01", "since"),
    ):
        assert field in fields(api.get(f"reports/reliability?{query}")), query
    problem(api.get("reports/reliability?cluster=west"), 404)
    problem(api.get("reports/lemons?cluster=west"), 404)
    assert "by" in fields(api.get("reports/lemons?by=code"))
    for path in ("reports/reliability", "reports/lemons"):
        problem(Api().get(path), 401)


def test_a_person_of_a_pool_sees_the_figures_of_that_pool(cluster: Cluster) -> None:
    now = timezone.now()
    for name, pool, days in (("gpu-1", "red", (2, 4)), ("gpu-2", "blue", (3, 5, 7))):
        found = node(cluster, name, pool)
        for day in days:
            healed(found, day * DAY)
    other = node(Cluster.objects.create(name="west", created_at=cluster.created_at), "gpu-9")
    healed(other, DAY)
    _, client = pools.bound("vera", "viewer", cluster, "red", now)
    report = client.get("/api/v1/reports/reliability?by=pool").json()
    assert ([row["key"] for row in report["rows"]], report["period"]["faults"]) == (["east/red"], 2)
    assert [row["node"] for row in client.get("/api/v1/reports/lemons").json()["results"]] == ["gpu-1"]
    page = client.get("/reports/?by=pool").content.decode()
    assert "/nodes/east/gpu-1/" in page
    assert "gpu-2" not in page
    assert "blue" not in page
    whole = caller("viewer", now)
    assert whole.get("reports/reliability?cluster=east").json()["period"]["faults"] == 5
    assert whole.get("reports/reliability").json()["period"]["faults"] == 6


def queries_of(client: Client, path: str) -> int:
    client.get(path)
    with CaptureQueriesContext(connection) as found:
        assert client.get(path).status_code == 200
    return len(found)


def test_a_report_costs_the_same_for_one_node_and_for_three(cluster: Cluster) -> None:
    client = person("vera", "viewer", timezone.now()).client
    healed(node(cluster, "gpu-1"), 2 * DAY)
    few = [queries_of(client, path) for path in ("/api/v1/reports/reliability", "/reports/")]
    for name in ("gpu-2", "gpu-3"):
        healed(node(cluster, name), 5 * DAY)
    assert [queries_of(client, path) for path in ("/api/v1/reports/reliability", "/reports/")] == few
    assert few == [23, 45]


def test_the_page_tells_how_many_recovered_where_no_median_is_known(cluster: Cluster) -> None:
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        healed(node(cluster, name), 2 * DAY).incidents.exclude(node__name="gpu-1").update(state="open", closed_at=None)
    Rescue.objects.exclude(node__name="gpu-1").delete()
    page = person("vera", "viewer", timezone.now()).client.get("/reports/").content.decode()
    assert "1 of 3 recovered" in page


def test_the_page_and_its_files_show_the_report(cluster: Cluster) -> None:
    for day in (2, 5, 32, 45):
        healed(node(cluster, "gpu-1") if day == 2 else Node.objects.get(name="gpu-1"), day * DAY)
    api = person("vera", "viewer", timezone.now())
    page = api.client.get("/reports/?period=90d").content.decode()
    assert re.findall(r'id="figure-([a-z]+)"', page) == list(report_figures.MEANINGS)
    for part in (
        'id="meanings"',
        'id="figure-cost"',
        "Xid 79",
        "/nodes/east/gpu-1/",
        'id="twin-out"',
        "/reports/groups.csv?period=90d",
    ):
        assert part in page
    assert "/reports/prices/east/" not in page
    lemon = api.get("reports/lemons").json()["results"][0]
    assert (lemon["node"], lemon["faults_28d"], lemon["faults_56d"]) == ("gpu-1", 2, 4)
    assert (lemon["advice_reason"]["code"], lemon["basis_reason"]["code"]) == ("lemon_hold", "risk_of_node")
    assert lemon["probability"] > lemon["probability_all"]
    rows = list(csv.DictReader(StringIO(api.client.get("/reports/groups.csv?by=pool").getvalue().decode())))
    assert [(row["key"], row["faults"], row["gpu_hours_lost"]) for row in rows] == [("east/red", "2", "50.0")]
    for table in ("groups", "phases", "steps", "trend", "figures", "lemons"):
        lines: list[dict[str, Any]] = [
            json.loads(line) for line in api.client.get(f"/reports/{table}.jsonl").getvalue().decode().splitlines()
        ]
        assert lines, table
    entry = Entry.objects.filter(verb="list.exported").latest("pk")
    assert (entry.actor, entry.data["name"]) == ("user:vera", "report-lemons")
    assert api.client.get("/reports/groups.csv?from=never").status_code == 400
    assert 'role="alert"' in api.client.get("/reports/?from=2026-02-30").content.decode()
    for path in ("/reports/nodes.csv", "/reports/groups.pdf", "/reports/?cluster=west"):
        assert api.client.get(path).status_code == 404


def test_the_price_is_an_audited_setting_of_page_rest_and_command(cluster: Cluster) -> None:
    now = timezone.now()
    assert person("vera", "viewer", now).client.get("/reports/prices/east/").status_code == 403
    api = person("otto", "operator", now)
    assert "/reports/prices/east/" in api.client.get("/reports/").content.decode()
    assert api.client.post("/reports/prices/east/", {"gpu_hour_price": "-1", "reason": "x"}).status_code == 422
    answer = api.client.post("/reports/prices/east/", {"gpu_hour_price": "3.75", "reason": "contract"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/reports/")
    entry = Entry.objects.filter(verb="cluster.changed").latest("pk")
    assert entry.data["changed"]["gpu_hour_price"] == {"before": "2.5000", "after": "3.75"}
    body = {"gpu_hour_price": "4.1", "reason": "x"}
    assert api.call("patch", "clusters/east", body).json()["gpu_hour_price"] == "4.1000"
    assert "gpu_hour_price" in fields(api.call("patch", "clusters/east", {"gpu_hour_price": "NaN"}))
    call_command("cluster", "set", "east", "gpu_hour_price=", "--reason", "x")
    cluster.refresh_from_db()
    assert cluster.gpu_hour_price is None
    healed(node(cluster, "gpu-1"), 2 * DAY)
    assert api.get("reports/reliability").json()["period"]["cost"] is None


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("code", {"kind": "xid", "code": "79"}),
        ("pool", {"cluster": "east", "pool": "red"}),
        ("cluster", {"cluster": "east"}),
        ("policy", {"policy": "gpu"}),
        ("rule", {"rule": "gpu#2"}),
    ],
)
def test_a_group_leads_to_what_is_behind_it(cluster: Cluster, by: str, names: dict[str, str]) -> None:
    """The list of the address has the rows, and knows each of its filters."""
    healed(node(cluster, "gpu-1"), 2 * DAY)
    client = person("vera", "viewer", timezone.now()).client
    page = client.get(f"/reports/?by={by}&cluster=east")
    [(_, address, _, _)] = page.context["rows"]
    assert escape(address) in page.content.decode()
    assert names.items() <= dict(parse_qsl(urlsplit(address).query)).items()
    shown = client.get(address)
    assert not shown.context["found"].problems
    assert shown.context["page"].paginator.count == 1
