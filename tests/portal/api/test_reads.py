"""Lists and single rows: fields, visibility, filters, pages, and the same number of queries however many rows."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.decisions import guards
from kcover_portal.accounts.models import RoleBinding
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.api.conftest import Api, add_node, add_story, caller, fields, person, problem
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db

LISTS = ("clusters", "nodes", "gpus", "incidents", "events", "decisions", "rescues", "approvals", "audit", "policies")


def test_an_incident_names_node_and_cluster_and_numbers_its_code(node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    [row] = viewer.get("incidents").json()["results"]
    incident = Incident.objects.get()
    assert row["id"] == incident.pk
    assert (row["cluster"], row["node"], row["kind"], row["code"]) == ("east", "gpu-1", "xid", 62)
    assert (row["state"], row["count"], row["drill"], row["severity"]) == ("open", 3, False, "fatal")
    assert row["opened_at"] == "2026-11-21T08:00:00Z"
    assert viewer.get(f"incidents/{incident.pk}").json() == row


@pytest.mark.parametrize(
    ("kind", "code", "shown"),
    [("xid", "79", 79), ("sxid", "12028", 12028), ("check", "dcgm", "dcgm"), ("pod", "1", "1")],
)
def test_a_code_is_a_number_only_where_the_kind_numbers_them(
    kind: str, code: str, shown: int | str, node: Node, viewer: Api, now: datetime
) -> None:
    add_story(node, now, kind=kind, code=code)
    assert viewer.get("incidents").json()["results"][0]["code"] == shown
    assert viewer.get("events").json()["results"][0]["code"] == shown


def test_a_message_of_the_portal_is_english_and_data(node: Node, viewer: Api, now: datetime) -> None:
    because = reasons.of("agent_silent", since=reasons.moment(now))
    seen = incidents.PortalFault(kind="agent", code="silent", because=because, source="portal")
    incidents.keep_fault(node, seen, boot_id="b", now=now)
    incidents.keep_storm(
        node.cluster, guards.Symptom(trait="switch", value="leaf-3", nodes=1), nodes=["gpu-1"], now=now
    )
    storm, silent = viewer.get("incidents", Accept_Language="zh-hans").json()["results"]
    [event] = viewer.get("events", Accept_Language="zh-hans").json()["results"]
    for row in (silent, event):
        assert (row["message"], row["message_reason"]) == (str(because), because.to_json())
    assert (storm["trait"], storm["symptom_kind"], storm["symptom"]) == ("switch", "", "leaf-3")
    common = reasons.of("storm_of_switch", value="leaf-3")
    assert (storm["message"], storm["message_reason"]) == (str(common), common.to_json())


def test_a_log_line_is_data_as_it_is(node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    [event] = viewer.get("events").json()["results"]
    assert (event["message"], event["message_reason"]) == ("Xid 62", None)


def test_a_rescue_shows_its_steps(node: Node, viewer: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    row = viewer.get(f"rescues/{rescue.pk}").json()
    assert (row["id"], row["cluster"], row["node"], row["state"]) == (rescue.pk, "east", "gpu-1", "held")
    assert (row["outcome"], row["verified"], row["rule"], row["revision"]) == ("", None, "kce#1", 1)
    assert row["incidents"] == [Incident.objects.get().pk]
    first, second = row["steps"]
    assert (first["name"], first["state"], first["attempts"]) == ("cordon", "done", 1)
    assert (second["name"], second["args"], second["started_at"], second["finished_at"]) == (
        "drain",
        {"seconds": 600},
        None,
        None,
    )


def test_a_decision_shows_its_reasons(node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    [row] = viewer.get("decisions").json()["results"]
    assert (row["node"], row["answer"], row["rule"], row["revision"], row["because"], row["count"]) == (
        "gpu-1",
        "rescue",
        "kce#1",
        1,
        [str(reasons.of("nothing_holds_back"))],
        1,
    )
    assert viewer.get(f"decisions/{row['id']}").json() == row


def test_a_decision_shows_its_reasons_in_english_and_as_data(node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    paused = {"code": "paused_because", "params": {"why": "look"}}
    mismatch = {"code": "rule_mismatch", "params": {"rule": "a#1", "why": paused}}
    tried = [{"rule": "a#1", "matched": False, "because": paused}]
    Decision.objects.update(because=[paused, mismatch], tried=tried)
    [row] = viewer.get("decisions").json()["results"]
    assert row["because"] == ["Automation is paused: look", "Rule a#1 does not apply. Automation is paused: look"]
    assert row["reasons"] == [paused, mismatch]
    assert [one["because"] for one in row["tried"]] == ["Automation is paused: look"]


def test_a_clusters_credentials_are_never_shown(east: Cluster, viewer: Api) -> None:
    response = viewer.get("clusters/east")
    assert response.json()["name"] == "east"
    assert b"hush" not in response.content
    assert "kubeconfig" not in response.json()


@pytest.mark.parametrize(
    ("changes", "story", "state"),
    [
        ({}, None, "healthy"),
        ({"unschedulable": True}, None, "cordoned"),
        ({"ready": False}, None, "not-ready"),
        ({"in_cluster": False, "ready": False}, None, "unknown"),
        ({}, "succeeded", "faulty"),
        ({"unschedulable": True}, "running", "rescue"),
    ],
)
def test_the_one_word_for_a_node(
    changes: dict[str, Any], story: str | None, state: str, east: Cluster, viewer: Api, now: datetime
) -> None:
    node = add_node(east, "gpu-1", now, **changes)
    add_node(east, "gpu-2", now)
    if story:
        add_story(node, now, state=story)
    row = viewer.get("nodes/east/gpu-1").json()
    assert row["state"] == state
    assert row["faults"] == (1 if story else 0)
    assert row["rescue"] == (Rescue.objects.get().pk if story == "running" else None)
    expected = [node.pk] if state != "healthy" else [node.pk, Node.objects.get(name="gpu-2").pk]
    assert viewer.ids(f"nodes?state={state}") == expected


def test_a_node_shows_its_place(node: Node, viewer: Api) -> None:
    Node.objects.filter(pk=node.pk).update(labels={"example.com/row": "r1", "kcover.io/switch": "s1"}, pool="a")
    Cluster.objects.filter(pk=node.cluster_id).update(topology={"rack": "example.com/row"})
    where = {"rack": "r1", "leaf": "s1", "nvlink": "", "pool": "a"}
    assert viewer.get(f"nodes/{node.cluster.name}/{node.name}").json()["topology"] == where


def test_a_node_that_left_is_gone(node: Node, viewer: Api, now: datetime) -> None:
    Node.objects.update(in_cluster=False, gone_at=now)
    assert viewer.get("nodes/east/gpu-1").json()["state"] == "gone"
    assert viewer.ids("nodes?state=gone") == [node.pk]
    assert viewer.ids("nodes?state=healthy") == []


def test_a_programs_fault_does_not_make_a_node_faulty(node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now, code="31", state="succeeded")
    Incident.objects.update(is_user_fault=True)
    assert viewer.get("nodes/east/gpu-1").json()["state"] == "healthy"
    assert viewer.ids("nodes?state=faulty") == []


def test_callers_see_their_own_clusters_only(east: Cluster, west: Cluster, now: datetime) -> None:
    for cluster in (east, west):
        add_story(add_node(cluster, f"{cluster.name}-1", now), now)
    here, everywhere = caller("viewer", now, cluster=east), caller("viewer", now)
    for path in LISTS[:-2]:
        assert len(here.ids(path)) == 1, path
        assert len(everywhere.ids(path)) == 2, path
    seen = {row["cluster"] for row in here.get("audit").json()["results"]}
    assert seen == {"east"}
    assert {row["cluster"] for row in everywhere.get("audit").json()["results"]} == {"", "east", "west"}
    other = Rescue.objects.get(cluster=west)
    for path in (
        "clusters/west",
        "nodes/west/west-1",
        f"rescues/{other.pk}",
        f"decisions/{other.decision_id}",
        f"incidents/{other.incidents.get().pk}",
    ):
        problem(here.get(path), 404)
        assert everywhere.get(path).status_code == 200


@pytest.mark.parametrize("path", LISTS)
def test_a_list_takes_the_same_queries_for_one_row_and_for_three(
    path: str, east: Cluster, viewer: Api, now: datetime
) -> None:
    # The token, the rows; the rest of rescues, health, witnesses.
    literal = {"rescues": 4, "nodes": 6, "gpus": 6, "incidents": 3}.get(path, 2)
    for index in range(1, 4):
        add_story(add_node(east, f"gpu-{index}", now), now)
        policies.apply(policy(f"p{index}"), author="t", reason="", now=now)
        if index == 2:
            continue
        viewer.get(path)  # notes the token's use
        with CaptureQueriesContext(connection) as asked:
            rows = viewer.get(path).json()["results"]
        assert len(rows) >= (1 if path == "clusters" else index)
        assert len(asked) == literal, [query["sql"] for query in asked]


def test_pages_are_walked_by_cursor_while_rows_are_added(node: Node, viewer: Api, now: datetime) -> None:
    for index in range(5):
        add_story(node, now, code=str(index + 46), state="failed")
    whole = viewer.ids("incidents")
    assert whole == sorted(whole, reverse=True)
    first = viewer.get("incidents?page_size=2").json()
    add_story(node, now, code="99", state="failed")
    walked = [row["id"] for row in first["results"]]
    url = first["next"]
    while url:
        page = viewer.client.get(url, headers=viewer.headers).json()
        walked += [row["id"] for row in page["results"]]
        url = page["next"]
    assert walked == whole
    assert first["previous"] is None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page_size=0", "page_size"),
        ("page_size=1001", "page_size"),
        ("page_size=ten", "page_size"),
        ("page_size=٣", "page_size"),
        ("cursor=nonsense", "cursor"),
        ("state=broken", "state"),
        ("kind=yid", "kind"),
        ("since=yesterday", "since"),
        ("drill=perhaps", "drill"),
        ("nod=gpu-1", "nod"),
    ],
)
def test_a_parameter_that_is_not_understood_is_named(query: str, field: str, viewer: Api) -> None:
    found = fields(viewer.get(f"incidents?{query}"))
    assert list(found) == [field]
    assert found[field]


def test_an_unknown_parameter_is_refused_with_the_known_ones(viewer: Api) -> None:
    found = fields(viewer.get("incidents?stat=open&code=62"))
    assert found == {"stat": found["stat"]}
    assert "Did you mean state?" in found["stat"]
    assert "page_size" in found["stat"]
    assert fields(viewer.get("clusters/east?x=1")) == {"x": "Unknown parameter. There are no parameters here."}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("cluster=east", ["gpu-1", "gpu-2"]),
        ("cluster=mars", []),
        ("node=gpu-2", ["gpu-2"]),
        ("pool=b", ["gpu-2"]),
        ("state=open", ["gpu-1"]),
        ("state=open&state=closed", ["gpu-1", "gpu-2"]),
        ("kind=xid", ["gpu-1"]),
        ("code=62", ["gpu-1"]),
        ("code=62,12028", ["gpu-1", "gpu-2"]),
        ("severity=warning", ["gpu-2"]),
        ("drill=true", ["gpu-2"]),
        ("drill=false", ["gpu-1"]),
        ("program=true", []),
        ("since=2026-11-21T08:30:00Z", ["gpu-2"]),
        ("until=2026-11-21T08:30:00Z", ["gpu-1"]),
        ("since=2026-11-21", ["gpu-1", "gpu-2"]),
        ("q=12028", ["gpu-2"]),
        ("q=GPU-1", ["gpu-1"]),
        ("q=row%20remap", ["gpu-2"]),
        ("device=0000:4e:00", ["gpu-2"]),
        ("gpu=GPU-9", ["gpu-2"]),
    ],
)
def test_incidents_are_narrowed(query: str, names: list[str], node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    later = now + timedelta(hours=1)
    add_story(add_node(node.cluster, "gpu-2", now, pool="b"), later, kind="sxid", code="12028")
    Incident.objects.filter(kind="sxid").update(
        state="closed",
        severity="warning",
        drill=True,
        message="Row remap failed",
        device="0000:4e:00",
        gpu_uuid="GPU-9",
    )
    rows = viewer.get(f"incidents?{query}").json()["results"]
    assert sorted(row["node"] for row in rows) == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("pool=b", ["gpu-2"]),
        ("model=H100", ["gpu-2"]),
        ("driver=580.1", ["gpu-2"]),
        ("ready=false", ["gpu-2"]),
        ("cordoned=true", ["gpu-2"]),
        ("cordoned=false", ["gpu-1"]),
        ("state=faulty&state=not-ready", ["gpu-1", "gpu-2"]),
        ("code=62", ["gpu-1"]),
        ("kind=xid&code=63", []),
        ("kind=xid", ["gpu-1"]),
        ("label=kcover.io/pool", ["gpu-2"]),
        ("label=kcover.io/pool=b", ["gpu-2"]),
        ("label=kcover.io/pool=c", []),
        ("seen_before=2026-11-21T08:00:01Z", ["gpu-1", "gpu-2"]),
        ("seen_before=2026-11-21T08:00:00Z", []),
        ("q=10.0.0", ["gpu-2"]),
        ("q=pu-1", ["gpu-1"]),
    ],
)
def test_nodes_are_narrowed(query: str, names: list[str], node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now, state="succeeded")
    add_node(
        node.cluster,
        "gpu-2",
        now,
        pool="b",
        model="H100",
        driver="580.1",
        ready=False,
        unschedulable=True,
        address="10.0.0.2",
        labels={"kcover.io/pool": "b"},
    )
    rows = viewer.get(f"nodes?{query}").json()["results"]
    assert [row["name"] for row in rows] == names


@pytest.mark.parametrize(
    ("path", "hits", "misses"),
    [
        ("gpus", ("node=gpu-1", "pool=a", "q=S-gpu", "cluster=east"), ("node=gpu-2", "q=zzz", "model=H200")),
        (
            "rescues",
            ("outcome=healed", "state=held", "code=xid%2062", "q=kce", "policy=kce", "rule=kce%231"),
            ("outcome=done", "state=failed", "verified=true", "policy=x", "needs_human=true", "origin=manual"),
        ),
        ("decisions", ("answer=rescue", "rule=kce%231", "policy=kce", "mode=enforce", "q=gpu"), ("answer=none",)),
        ("events", ("source=kmsg", "code=62", "q=xid", "kind=xid"), ("source=nvml", "code=63")),
        ("approvals", ("approved=true", "node=gpu-1", "cluster=east"), ("approved=false",)),
        (
            "audit",
            ("verb=marks.found", "node=gpu-1", "actor=system", "q=marks", "cluster=east"),
            ("verb=other", "node=x"),
        ),
    ],
)
def test_other_lists_are_filtered(
    path: str, hits: tuple[str, ...], misses: tuple[str, ...], node: Node, viewer: Api, now: datetime
) -> None:
    add_story(node, now)
    Rescue.objects.update(outcome="healed")
    for query in hits:
        assert len(viewer.ids(f"{path}?{query}")) == 1, query
    for query in misses:
        assert viewer.ids(f"{path}?{query}") == [], query


@pytest.mark.parametrize(("path", "key"), [("events", "incident"), ("decisions", "incident"), ("rescues", "incident")])
def test_rows_are_filtered_by_incident(path: str, key: str, node: Node, viewer: Api, now: datetime) -> None:
    add_story(node, now)
    pk = Incident.objects.get().pk
    assert len(viewer.ids(f"{path}?{key}={pk}")) == 1
    assert viewer.ids(f"{path}?{key}={pk + 1}") == []


def test_a_signed_in_person_reads_too(node: Node, now: datetime) -> None:
    assert person("anna", "viewer", now).ids("nodes") == [node.pk]


def test_a_person_without_a_role_cannot_read(node: Node, now: datetime) -> None:
    anna = person("anna", "viewer", now)
    RoleBinding.objects.all().delete()
    assert "no role" in problem(anna.get("nodes"), 403)["detail"]
