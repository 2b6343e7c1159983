"""Bulk actions: the action affects exactly the previewed rows, each with its own result."""

import re

import pytest

from kcover import reasons
from kcover.decisions import guards
from kcover_portal.accounts.models import RoleBinding, User
from kcover_portal.console.views import bulk_actions
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.rescue.world import World

APPROVE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask}
spec:
  rules:
    - priority: 10
      mode: approve
      errorCode: ["62"]
      actions: [{name: cordon}, {name: drain}]
"""
HTMX = {"HX-Request": "true"}


def text(response) -> str:
    return response.content.decode()


def form(page: str) -> dict[str, str]:
    """The hidden fields of the preview."""
    return dict(re.findall(r'<input type="hidden" name="(picked|once)" value="([^"]*)"', page))


def keys(*names: str) -> str:
    return ",".join(str(Node.objects.get(name=name).pk) for name in names)


@pytest.fixture
def fleet(world: World) -> World:
    """Eight nodes; one is excluded by its label."""
    for index in range(2, 9):
        world.kube.add_node(f"gpu-{index}", gpus=8)
    world.sync()
    Node.objects.filter(name="gpu-3").update(labels={"kcover.io/exclude": "true"})
    return world


def test_a_preview_names_included_and_excluded_nodes_and_changes_nothing(person, fleet: World):
    fleet.kube.add_pod("train", "worker-0", node="gpu-1")
    page = text(person("operator").get(f"/many/nodes/drain/?picked={keys('gpu-1', 'gpu-2', 'gpu-3')}", headers=HTMX))
    assert "<html" not in page
    assert "Drain 3 nodes" in page
    assert "Applies to 2 of 3" in page
    assert str(reasons.of("excluded", node="gpu-3", label=guards.EXCLUDE_LABEL)) in page
    assert "1 pod will be evicted" in page
    assert form(page)["picked"] == keys("gpu-1", "gpu-2")
    assert not Rescue.objects.exists()


def test_each_node_gets_one_rescue_with_the_reason(person, fleet: World):
    client = person("operator", name="omar")
    given = form(text(client.get(f"/many/nodes/cordon/?picked={keys('gpu-1', 'gpu-2')}", headers=HTMX)))
    assert client.post("/many/nodes/cordon/", {**given, "reason": "  "}, headers=HTMX).status_code == 422
    done = client.post("/many/nodes/cordon/", {**given, "reason": "ticket 7"}, headers=HTMX)
    assert "Result" in text(done)
    made = Rescue.objects.order_by("pk")
    assert [(row.node.name, row.requested_by, row.reason) for row in made] == [
        ("gpu-1", "user:omar", "ticket 7"),
        ("gpu-2", "user:omar", "ticket 7"),
    ]
    client.post("/many/nodes/cordon/", {**given, "reason": "ticket 7"}, headers=HTMX)
    assert Rescue.objects.count() == 2


def test_a_bulk_action_reports_the_nodes_that_it_refused(person, fleet: World):
    client = person("operator")
    given = form(text(client.get(f"/many/nodes/cordon/?picked={keys('gpu-1', 'gpu-2')}", headers=HTMX)))
    fleet.fault(node="gpu-2")
    fleet.work()
    done = text(client.post("/many/nodes/cordon/", {**given, "reason": "r"}, headers=HTMX))
    assert "is open on this node" in done
    assert Rescue.objects.filter(origin="manual").count() == 1


def test_above_five_the_number_is_typed(person, fleet: World):
    client = person("operator")
    page = text(client.get("/many/nodes/cordon/?all=1&q=gpu", headers=HTMX))
    assert "Type cordon 7 to confirm" in page
    given = {**form(page), "reason": "r"}
    assert client.post("/many/nodes/cordon/", given).status_code == 422
    assert client.post("/many/nodes/cordon/", {**given, "name": "cordon 8"}).status_code == 422
    assert not Rescue.objects.exists()
    assert client.post("/many/nodes/cordon/", {**given, "name": "cordon 7"}).status_code == 200
    assert Rescue.objects.count() == 7


def test_selecting_all_uses_the_filters(person, fleet: World):
    page = text(person("operator").get("/many/nodes/cordon/?all=1&q=gpu-2", headers=HTMX))
    assert "Cordon 1 node" in page


def test_a_bulk_action_without_a_preview_is_refused(person, fleet: World):
    client = person("operator")
    response = client.post("/many/nodes/cordon/", {"all": "1", "picked": "", "reason": "r"})
    assert response.status_code == 422
    assert not Rescue.objects.exists()


def test_a_selection_beyond_the_limit_is_refused(person, fleet: World, monkeypatch):
    monkeypatch.setattr(bulk_actions, "MAX_ROWS", 3)
    response = person("operator").get("/many/nodes/cordon/?all=1", headers=HTMX)
    assert response.status_code == 422
    assert "At most 3 at once" in text(response)


def test_a_bulk_action_checks_the_role_for_each_row(person, fleet: World):
    other = Cluster.objects.create(name="other", created_at=fleet.now)
    client = person("operator", cluster=other, name="oona")
    assert client.get(f"/many/nodes/cordon/?picked={keys('gpu-1')}").status_code == 422  # sees no such node
    page = text(person("viewer").get(f"/many/nodes/cordon/?picked={keys('gpu-1')}"))
    assert "Requires the Operator role." in page
    RoleBinding.objects.create(user=User.objects.get(username="oona"), cluster=fleet.cluster, role="viewer")
    answer = client.post("/many/nodes/cordon/", {"picked": keys("gpu-1"), "reason": "r", "once": "a"})
    assert "Requires the Operator role." in text(answer)
    assert not Rescue.objects.exists()


@pytest.mark.parametrize("path", ["/many/nodes/explode/", "/many/incidents/cordon/", "/many/audit/cancel/"])
def test_other_bulk_acts_do_not_exist(person, world: World, path: str):
    assert person("admin").get(path).status_code == 404


def test_a_viewer_is_offered_no_choosing(person, world: World):
    assert "data-pick=" not in text(person("viewer").get("/nodes/"))
    assert "data-pick=" in text(person("operator").get("/nodes/"))


class TestRescues:
    @pytest.fixture
    def held(self, db: None):
        world = World(policy=APPROVE, nodes=40)  # enough that the budgets let two go
        world.fault(node="gpu-1")
        world.fault(node="gpu-2")
        world.work()
        yield list(Rescue.objects.order_by("pk"))
        world.uninstall()

    def test_many_rescues_are_approved_with_the_shown_plans(self, person, held: list[Rescue]):
        client = person("approver", name="appa")
        page = text(client.get("/many/rescues/approve/?all=1&tab=approval", headers=HTMX))
        given = form(page)
        assert given["picked"] == ",".join(f"{one.pk}:{one.plan_hash}" for one in held)
        Rescue.objects.filter(pk=held[1].pk).update(plan_hash="another")
        done = text(client.post("/many/rescues/approve/", {**given, "reason": "go"}, headers=HTMX))
        assert str(reasons.of("plan_changed")) in done
        assert [(one.rescue_id, one.by) for one in Approval.objects.all()] == [(held[0].pk, "user:appa")]

    def test_an_operator_may_cancel_but_not_approve(self, person, held: list[Rescue]):
        client = person("operator")
        assert "Requires the Approver role." in text(client.get("/many/rescues/approve/?all=1"))
        page = text(client.get("/rescues/"))
        assert "/many/rescues/cancel/" in page
        assert "/many/rescues/approve/" not in page

    def test_an_ended_rescue_is_left_out(self, person, held: list[Rescue]):
        client = person("approver")
        client.post(f"/rescues/{held[0].pk}/reject/", {"reason": "no"})
        page = text(client.get("/many/rescues/reject/?all=1", headers=HTMX))
        assert "Applies to 1 of 2" in page
        assert "not possible in state: Cancelled" in page
