"""The acts that the page of a node offers: those that change something on the node as it is now."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.test import Client

from kcover_portal.console.reads import node_acts
from kcover_portal.console.reads.bulk_actions import NODE_VERBS
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.rescue.world import World

PAGE = "/nodes/c1/gpu-1/"
BASIC = ["cordon", "drain", "reboot", "offline"]
AT_REST = [*BASIC, "exclude"]


def offered(world: World, name: str = "gpu-1") -> Sequence[str]:
    node = world.node(name)
    opened = Incident.objects.filter(node=node, state=Incident.State.OPEN)
    return list(node_acts.offered(node, queries.open_on(node), opened, now=world.now))


def closed(world: World, **more: object) -> Rescue:
    shown = {"state": "cancelled", "requested_by": "user:x", "origin": "manual"}
    times = {"opened_at": world.now, "closed_at": world.now}
    return Rescue.objects.create(cluster=world.cluster, node=world.node(), **(shown | times | more))


def test_a_node_at_rest_offers_no_return(make):
    world = make(nodes=1)
    assert offered(world) == AT_REST
    world.kube.cordon("gpu-1")
    world.sync()
    assert offered(world) == ["uncordon", "drain", "reboot", "offline", "exclude"], "the cordon is somebody else's"


def test_a_node_under_rescue_offers_what_ends_the_rescue_and_a_cordon_until_it_has_one(make):
    world = make(nodes=1)
    Rescue.objects.create(
        cluster=world.cluster, node=world.node(), origin="manual", requested_by="user:x", opened_at=world.now
    )
    assert offered(world) == ["cordon", "release", "exclude"]
    Rescue.objects.update(state="held", hold="approval")
    assert offered(world) == ["cordon", "drain", "reboot", "offline", "release", "exclude"], (
        "their dialogs say what is in the way"
    )
    Rescue.objects.update(state="waiting", hold="")
    world.kube.cordon("gpu-1")
    world.sync()
    assert offered(world) == ["uncordon", "release", "exclude"]


def test_a_node_that_the_portal_has_isolated_offers_its_release(make):
    world = make(nodes=1)
    services.request(world.node(), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    world.work()
    world.sync()
    assert offered(world) == ["uncordon", "drain", "reboot", "offline", "release", "exclude"]


@pytest.mark.parametrize(
    "columns", [{"not_ready_since": True}, {"probation_until": True}], ids=["readiness taint", "probation"]
)
def test_what_the_portal_keeps_on_a_node_can_be_released(make, columns):
    world = make(nodes=1)
    Node.objects.update(**dict.fromkeys(columns, world.now))
    assert "release" in offered(world)
    assert ("uncordon" in offered(world)) == ("not_ready_since" in columns)


def test_a_stopped_rescue_offers_a_release_only_while_it_holds_a_fault_back(make):
    world = make(nodes=1, policy="")
    closed(world)
    assert offered(world) == AT_REST
    world.fault(79)
    assert offered(world) == [*BASIC, "release", "exclude"]
    Incident.objects.update(state=Incident.State.CLOSED)
    assert offered(world) == AT_REST
    closed(world, marks={"cordon": True})
    closed(world, state="succeeded")
    assert offered(world) == [*BASIC, "release", "exclude"]


def test_a_guard_or_a_pause_hides_no_act(make):
    world = make(nodes=1)
    world.cluster.mode = "paused"
    world.cluster.save()
    Node.objects.update(labels={"kcover.io/exclude": "true"})
    assert offered(world) == [*BASIC, "end_exclusion"]


def test_a_node_that_left_the_cluster_offers_no_act(make):
    world = make(nodes=1)
    Node.objects.update(in_cluster=False)
    assert offered(world) == []


def test_a_cluster_that_does_not_answer_hides_no_act(make):
    world = make(nodes=1)
    Cluster.objects.update(watched_at=world.now - timedelta(hours=1))
    assert offered(world) == list(NODE_VERBS)


def test_the_acts_are_refreshed_with_the_page_and_only_for_those_who_may(make, person):
    world = make(nodes=1)
    client = person("operator")

    def shown(client: Client, *, fragment: bool = False) -> list[str]:
        text = client.get(PAGE, headers={"HX-Request": "true"} if fragment else {}).content.decode()
        assert (text.count('hx-swap-oob="innerHTML:#node-acts"'), text.count('id="node-acts"')) == (
            fragment,
            not fragment,
        )
        return [verb for verb in ("cordon", "uncordon", "release") if f'id="act-{verb}"' in text]

    assert shown(client) == shown(client, fragment=True) == ["cordon"]
    world.kube.cordon("gpu-1")
    world.sync()
    assert shown(client, fragment=True) == ["uncordon"]
    assert shown(person("viewer")) == []
    assert client.get(f"{PAGE}release/").status_code == 200  # the server judges an act that is not shown


def test_a_person_excludes_a_node_after_a_preview_and_ends_the_exclusion(make, person):
    make(nodes=1)
    client = person("operator")
    assert client.get(f"{PAGE}exclude/").context["plan"].held_back == []
    assert client.post(f"{PAGE}exclude/", {"reason": ""}).status_code == 422
    assert not Rescue.objects.exists()
    assert client.post(f"{PAGE}exclude/", {"reason": "ticket 7"}).status_code == 302
    Node.objects.update(labels={"kcover.io/exclude": "true"})
    assert client.post(f"{PAGE}end_exclusion/", {"reason": "ticket 7"}).status_code == 403
    assert "end_exclusion" not in client.get(PAGE).context["verbs"]
    client = person("approver")
    assert "end_exclusion" in client.get(PAGE).context["verbs"]
    assert client.post(f"{PAGE}end_exclusion/", {"reason": "ticket 7"}).status_code == 302
    assert [row.steps.get().name for row in Rescue.objects.order_by("pk")] == ["exclude", "end_exclusion"]
    assert person("viewer").post(f"{PAGE}exclude/", {"reason": "x"}).status_code == 403
    assert Rescue.objects.count() == 2


def test_the_preview_of_a_drain_names_the_jobs_and_the_budgets_in_its_way(make, person):
    world, client = make(nodes=1), person("operator")
    label = {port.KUBEFLOW_JOB_LABEL: "llm"}
    world.kube.add_pod("train", "llm-0", node="gpu-1", labels=label, owner_kind="PyTorchJob", owner_name="llm")
    world.kube.add_budget("train", "keep", match=label)
    shown = client.get(f"{PAGE}drain/")
    assert (shown.context["plan"].jobs, shown.context["plan"].budgets) == (["train/llm"], ["train/keep"])
    assert all(name in shown.content.decode() for name in ("train/llm", "train/keep"))
    many = client.get("/many/nodes/drain/", {"picked": str(world.node().pk)})
    assert [list(hit.budgets) for hit in many.context["hits"]] == [["train/keep"]]
    assert "train/keep" in many.content.decode()
    world.kube.fail("budgets", port.RefusedByServer("forbidden"))
    assert client.get(f"{PAGE}drain/").context["plan"].budgets is None
    assert client.get(f"{PAGE}cordon/").context["plan"].jobs is None


def test_the_preview_names_other_nodes_of_the_job(make, person):
    world, client = make(nodes=2), person("operator")
    jobs.forget()
    add_job(world, "llm", "gpu-1", "gpu-2")
    [hit] = client.get(f"{PAGE}reboot/").context["jobs"]
    assert (hit.job.name, hit.job.nodes, hit.job.gpus, hit.others) == ("llm", ("gpu-1", "gpu-2"), 16, [])
    assert client.get(f"{PAGE}cordon/").context["jobs"] == []


def test_the_preview_of_an_isolation_says_what_it_leaves_of_the_limits(make, person):
    world, client = make(nodes=4), person("operator")
    Cluster.objects.update(guards={"breaker": {"limit": 3}, "budget": {"limit": 2}, "floor": {"percent": None}})

    def rooms(verb: str) -> dict[str, tuple[int, int]]:
        shown = client.get(f"{PAGE}{verb}/").context["rooms"]
        return {str(guard): (before, after) for guard, before, after in shown}

    assert rooms("cordon") == rooms("reboot") == {"Breaker": (3, 2), "Budget": (2, 1)}
    assert rooms("exclude") == rooms("uncordon") == {}
    services.request(world.node("gpu-2"), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    world.work()
    assert rooms("drain") == {"Breaker": (2, 1), "Budget": (1, 0)}
    services.request(world.node(), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    world.work()
    assert rooms("drain") == {}, "the node holds its slot already"
    Cluster.objects.update(guards={"breaker": {"limit": 2}, "budget": {"limit": 2}, "floor": {"percent": None}})
    Rescue.objects.exclude(node=world.node("gpu-2")).delete()
    services.request(world.node("gpu-3"), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    assert rooms("cordon") == {"Breaker": (0, 0), "Budget": (0, 0)}, "a person's request passes the breaker"
