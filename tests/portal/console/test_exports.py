"""Exports of lists: all rows of the page's filters, stable columns, and no formulas for a spreadsheet."""

import csv
import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import audit, reasons
from kcover_portal.audit_stream.models import Sink
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.console import exports, lists
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger import services as ledger
from kcover_portal.notify.models import Delivery
from kcover_portal.parts.models import Part, Placement
from kcover_portal.policies import services as policies
from kcover_portal.preflight.models import PairPlan, PreflightRun
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.sources.models import Source

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
HEADERS = {
    "nodes": "id cluster name known ready ready_since unready_since cordoned faults rescue pool model gpus driver "
    "kernel kubelet address boot_id agent_version agent_seen_at labels taints created_at gone_at",
    "incidents": "id cluster node kind code state severity program cause drill count device gpu_uuid message boot_id "
    "opened_at last_at closed_at closed_because",
    "occurrences": "id incident cluster node kind code source sequence message drill count boot_id seen_at at "
    "late_seconds",
    "decisions": "id cluster node incident answer mode rule policy revision because tried steps count at last_at",
    "rescues": "id cluster node state outcome verified because needs_human origin requested_by reason opened_because "
    "code policy revision rule decision plan_hash opened_at due_at closed_at",
    "placements": "id part kind serial model cluster node slot device from to doubt flags flagged_at reviewed_by "
    "reviewed_at",
    "repairs": "id cluster node state machine_serial part_kind part_serial part_slot vendor queue ticket assignee due "
    "action opened_because opened_by rescue reported_at accepted_at in_repair_at returned_at validating_at closed_at "
    "refused_at",
    "audit": "id cluster sequence at actor verb subject node rescue data previous digest",
    "deliveries": "id channel state test subject text attempts because opened_at due_at closed_at",
    "revisions": "id policy number author reason at text",
    "check-runs": "id cluster state checks r batch total done wrong requested_by requested_at finished_at",
    "validations": "id cluster profile state reason requested_by requested_at finished_at",
    "preflight-runs": "id cluster namespace workload uid state received expected_reports slow_nodes abnormal_nodes "
    "suspect_nodes rejected because first_at last_at due_at ended_at",
    "preflight-plans": "id cluster state rule rounds threshold slow fabric inconclusive storm reason requested_by "
    "requested_at finished_at",
    "sources": "id name kind cluster url settings enabled created_by created_at",
    "audit-sinks": "id name kind topics options enabled created_by created_at",
}
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: p%d}
spec: {rules: [{priority: 10, errorCode: ["62"], actions: [{name: cordon}]}]}
"""
# What every answer costs beside its place: the session, the user, their roles; one query for all rows of the list.
QUERIES = 4


def fill(cluster: Cluster, number: int) -> None:
    """One row of every list."""
    node = Node.objects.create(
        cluster=cluster, name=f"gpu-{number}", created_at=NOW, in_cluster=True, ready=True, gpus=8, labels={"a": "b"}
    )
    Agent.objects.create(node=node, seen_at=NOW, boot_id="b", boot_seen_at=NOW)
    at = {"opened_at": NOW, "last_at": NOW}
    incident = Incident.objects.create(cluster=cluster, node=node, kind="xid", code="62", message="=1+1", **at)
    Occurrence.objects.create(incident=incident, node=node, source="kmsg", message="+1", at=NOW)
    CheckRun.objects.create(cluster=cluster, checks=["dcgm"], requested_by="user:x", requested_at=NOW)
    Validation.objects.create(cluster=cluster, profile="full", document={}, requested_by="user:x", requested_at=NOW)
    PairPlan.objects.create(cluster=cluster, rounds=5, threshold=350, gpus=8, requested_by="user:x", requested_at=NOW)
    PreflightRun.objects.create(
        cluster=cluster, namespace="ml", workload=f"w{number}", size=2, first_at=NOW, last_at=NOW, due_at=NOW
    )
    decision = Decision.objects.create(
        cluster=cluster,
        node=node,
        incident=incident,
        answer="none",
        mode="enforce",
        because=[{"code": "no_policy", "params": {}}],
        at=NOW,
        last_at=NOW,
    )
    Rescue.objects.create(
        cluster=cluster,
        node=node,
        decision=decision,
        origin="manual",
        requested_by="user:x",
        plan_hash="h",
        state="succeeded",
        opened_at=NOW,
        closed_at=NOW + timedelta(minutes=3),
    )
    Repair.objects.create(cluster=cluster, node=node, node_name=node.name, opened_by="user:x", reported_at=NOW)
    part = Part.objects.create(kind="gpu", serial=f"S{number}", first_seen_at=NOW)
    Placement.objects.create(part=part, cluster=cluster, node=node, node_name=node.name, since=NOW)
    Delivery.objects.create(name="on-call", key=uuid.uuid4(), subject="=x", opened_at=NOW)
    Source.objects.create(name=f"s{number}", kind="loki", cluster=cluster, created_by="user:x", created_at=NOW)
    Sink.objects.create(name=f"s{number}", kind="syslog", created_by="user:x", created_at=NOW, due_at=NOW)
    refused = audit.RequestRefused(node=node.name, requested=("drain",), because=reasons.of("pod_gone"))
    ledger.record(cluster.name, refused, actor="@x", now=NOW)


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster.objects.create(name="c1", created_at=NOW)


def body(response) -> str:
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def table(response) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(body(response))))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", HEADERS)
def test_every_list_is_streamed_in_one_query(person, cluster: Cluster, name: str, rows: int):
    client = person("admin")
    for number in range(rows):
        fill(cluster, number)
        policies.apply(POLICY % number, author="t", reason="", now=NOW)
    asked = "?verb=request" if name == "audit" else ""
    with CaptureQueriesContext(connection) as queries:
        found = table(client.get(f"/export/{name}.csv{asked}"))
    of_the_place = ("runtime_lease", "SAVEPOINT", "ledger_chain", "INSERT INTO")
    assert sum(not any(word in query["sql"] for word in of_the_place) for query in queries) == QUERIES
    assert len(found) == rows
    assert list(found[0]) == HEADERS[name].split()
    lines = body(client.get(f"/export/{name}.jsonl{asked}")).splitlines()
    assert [list(json.loads(line)) for line in lines] == [HEADERS[name].split()] * rows


def test_a_list_that_is_defined_can_be_exported() -> None:
    assert set(lists.LISTINGS) == set(HEADERS)


def test_exported_reasons_equal_those_of_rest(person, cluster: Cluster):
    fill(cluster, 1)
    reason = reasons.of("lists_others", listed="48", code="62")
    tried = [{"rule": "p#1", "matched": False, "because": reason.to_json()}]
    Decision.objects.update(because=[reason.to_json()], tried=tried)
    (row,) = table(person("viewer").get("/export/decisions.csv"))
    assert json.loads(row["because"]) == ["It covers 48, not 62."]
    assert json.loads(row["tried"]) == [{"rule": "p#1", "matched": False, "because": "It covers 48, not 62."}]


def test_a_file_is_named_by_list_and_day(person, cluster: Cluster):
    fill(cluster, 1)
    response = person("viewer").get("/export/incidents.csv")
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    today = datetime.now(UTC).date().isoformat()
    assert response.headers["Content-Disposition"] == f'attachment; filename="kcover-incidents-{today}.csv"'
    assert response.headers["Cache-Control"] == "private, no-store"
    body(response)


def test_an_export_has_the_rows_of_the_page(person, cluster: Cluster):
    for number in range(3):
        fill(cluster, number)
    Node.objects.filter(name="gpu-2").update(gone_at=NOW)
    client = person("viewer")
    assert [row["name"] for row in table(client.get("/export/nodes.csv?q=gpu"))] == ["gpu-1", "gpu-0"]
    assert [row["name"] for row in table(client.get("/export/nodes.csv?state=gone"))] == ["gpu-2"]
    assert len(table(client.get("/export/rescues.csv?tab=succeeded"))) == 3
    assert table(client.get("/export/rescues.csv?tab=failed")) == []
    page = client.get("/rescues/?tab=succeeded&code=&page=1").content.decode()
    assert 'href="/export/rescues.csv?tab=succeeded' in page
    assert "/api/v1/rescues?state=succeeded" in page.replace("&amp;", "&")


def test_chosen_rows_only(person, cluster: Cluster):
    for number in range(3):
        fill(cluster, number)
    keys = list(Incident.objects.order_by("-pk").values_list("pk", flat=True))
    found = table(person("viewer").get(f"/export/incidents.csv?picked={keys[0]},{keys[2]},x,{'9' * 30}"))
    assert [int(row["id"]) for row in found] == [keys[0], keys[2]]


def test_an_export_has_no_rows_of_another_cluster(person, cluster: Cluster):
    fill(cluster, 1)
    other = Cluster.objects.create(name="other", created_at=NOW)
    client = person("viewer", cluster=other)
    for name in ("nodes", "incidents", "occurrences", "decisions", "rescues"):
        assert table(client.get(f"/export/{name}.csv")) == []
    assert {row["cluster"] for row in table(client.get("/export/audit.csv"))} <= {"other"}


def test_a_bad_filter_is_an_error_and_no_whole_list(person, cluster: Cluster):
    fill(cluster, 1)
    response = person("viewer").get("/export/incidents.csv?state=nonsense")
    assert response.status_code == 400
    assert response.content.startswith(b"state: ")


@pytest.mark.parametrize("path", ["/export/secrets.csv", "/export/nodes.xlsx"])
def test_an_unknown_list_is_not_found(person, db: None, path: str):
    assert person("viewer").get(path).status_code == 404


def test_a_stranger_gets_no_file(client, db: None):
    assert client.get("/export/nodes.csv").status_code == 302


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1"])
def test_no_exported_cell_is_a_formula(text: str):
    assert str(exports.cell(text)).startswith("'")


@pytest.mark.parametrize(
    "text", ["lost;=1+1", "lost;+1", "lost; @x", 'lost;"=1+1', "lost\n=1+1", "lost\t-1", "a;\uff1d1", ";=1"]
)
def test_no_exported_cell_is_a_formula_with_semicolons(text: str):
    line = "".join(exports.as_csv(["message"], [("gpu-1", text, {"said": text})])).split("\r\n", 1)[1]
    for begins in re.split(r"[;\t\r\n]", line)[1:]:  # no quote of the line holds: its first cell has none
        assert not begins.lstrip(' "').startswith(exports.FORMULA), begins


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (True, "true"),
        (-1.5, -1.5),
        (0, 0),
        ("a=b", "a=b"),
        ({"a": ["ü"]}, '{"a":["ü"]}'),
        (NOW, "2026-11-21T08:00:00Z"),
    ],
)
def test_cells_are_plain(value: object, cell: object):
    assert exports.cell(value) == cell


def test_json_lines_keep_values_and_types(person, cluster: Cluster):
    fill(cluster, 1)
    (line,) = body(person("viewer").get("/export/incidents.jsonl")).splitlines()
    row = json.loads(line)
    assert (row["message"], row["program"], row["closed_at"]) == ("=1+1", False, None)
    assert row["opened_at"] == "2026-11-21T08:00:00Z"


def test_settings_are_exported_without_keys_and_to_admins_only(person, cluster: Cluster) -> None:
    made = {"created_by": "user:x", "created_at": NOW}
    Source.objects.create(name="s", kind="gpud", cluster=cluster, url="https://u:hush@gpud.example/a?key=hush", **made)
    Sink.objects.create(name="siem", kind="syslog", due_at=NOW, **made)
    admin, operator = person("admin"), person("operator")
    for shape in ("csv", "jsonl"):
        found = body(admin.get(f"/export/sources.{shape}"))
        assert "gpud.example" in found
        assert "hush" not in found
        assert "siem" in body(admin.get(f"/export/audit-sinks.{shape}"))
        assert "siem" not in body(operator.get(f"/export/audit-sinks.{shape}"))
    stranger = person("admin", cluster=Cluster.objects.create(name="c2", created_at=NOW))
    assert "gpud.example" not in body(stranger.get("/export/sources.csv"))


@pytest.mark.parametrize("text", ["\t" * 200_000, '"; ' * 70_000, "\n" * 200_000 + "a=1"])
def test_what_a_node_sends_takes_linear_time_to_quote(text: str):
    """A quadratic search takes minutes."""
    assert str(exports.cell(text)).endswith(text)
