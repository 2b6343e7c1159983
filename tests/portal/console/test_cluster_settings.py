"""The settings of a cluster on the page Safety: topology, second person, and changes that wait for another admin."""

from typing import Any

import pytest
from django.test import Client

from kcover_portal.fleet.models import Cluster, Node, PendingChange
from kcover_portal.ledger.models import Entry

WHY = {"reason": "moved"}
TICKED = {"second_admin": "on", "isolate_before_approval": "on", **WHY}


@pytest.fixture
def east(db: None, now: Any) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def anna(person: Any, east: Cluster) -> Client:
    return person("admin", name="anna")


@pytest.mark.parametrize("page", ["topology", "drains", "people"])
def test_only_admins_change_them(person: Any, east: Cluster, page: str) -> None:
    client = person("approver")
    assert client.get(f"/safety/east/{page}/").status_code == 403
    assert client.post(f"/safety/east/{page}/", WHY).status_code == 403
    assert f"/safety/east/{page}/" not in client.get("/safety/").content.decode()


def test_a_topology_is_set_and_shown(anna: Client, east: Cluster) -> None:
    sent = {"rack": "example.com/rack", "leaf": "", "pool": "example.com/team", **WHY}
    assert anna.post("/safety/east/topology/", sent).status_code == 302
    east.refresh_from_db()
    assert east.topology == {"rack": "example.com/rack", "pool": "example.com/team"}
    assert Entry.objects.get(verb="cluster.changed").data["reason"] == "moved"
    assert "example.com/team" in anna.get("/safety/").content.decode()


def test_save_says_what_is_in_force_and_what_waits(anna: Client, east: Cluster) -> None:
    def said(answer: Any) -> list[str]:
        assert answer.status_code == 302
        return [message.level_tag for message in anna.get("/safety/").context["messages"]]

    assert said(anna.post("/safety/east/people/", {"hand_approval": "always", **TICKED})) == ["success"]
    assert said(anna.post("/safety/east/people/", {"hand_approval": "never", **TICKED})) == ["warning"]


def test_a_bad_label_key_is_shown_at_its_field(anna: Client, east: Cluster) -> None:
    refused = anna.post("/safety/east/topology/", {"rack": "no key!", **WHY})
    assert refused.status_code == 422
    assert list(refused.context["form"].errors) == ["rack"]


def test_a_looser_setting_waits_for_another_admin(anna: Client, person: Any, east: Cluster) -> None:
    first = {"hand_approval": "always", **TICKED}
    assert anna.post("/safety/east/people/", first).status_code == 302
    east.refresh_from_db()
    assert (east.hand_approval, east.second_admin) == ("always", True)

    anna.post("/safety/east/people/", {"hand_approval": "never", **TICKED})
    east.refresh_from_db()
    change = PendingChange.objects.get()
    assert (east.hand_approval, change.changes) == ("always", {"hand_approval": "never"})

    confirm = f"/safety/changes/{change.pk}/confirm/"
    assert confirm not in anna.get("/safety/").content.decode(), "the requester is not offered the confirmation"
    assert anna.post(confirm, WHY).status_code == 422
    bo = person("admin", name="bo")
    assert confirm in bo.get("/safety/").content.decode()
    assert bo.post(confirm, WHY).status_code == 302
    east.refresh_from_db()
    assert east.hand_approval == "never"


def test_what_follows_a_drain_timeout_is_set_and_what_is_looser_waits(anna: Client, person: Any, east: Cluster) -> None:
    assert anna.get("/safety/east/drains/").context["form"].initial["on_drain_timeout"] == "hold"
    assert anna.post("/safety/east/drains/", {"on_drain_timeout": "proceed", **WHY}).status_code == 302
    east.refresh_from_db()
    assert east.on_drain_timeout == "proceed"
    assert "Continue without the remaining pods." in anna.get("/safety/").content.decode()
    assert anna.post("/safety/east/drains/", {"on_drain_timeout": "later", **WHY}).status_code == 422

    Cluster.objects.update(second_admin=True)
    person("admin", name="bo")
    anna.post("/safety/east/drains/", {"on_drain_timeout": "force", **WHY})
    east.refresh_from_db()
    assert (east.on_drain_timeout, PendingChange.objects.get().changes) == ("proceed", {"on_drain_timeout": "force"})
    anna.post("/safety/east/drains/", {"on_drain_timeout": "hold", **WHY})
    east.refresh_from_db()
    assert east.on_drain_timeout == "hold"


def test_isolation_before_approval_is_set_on_the_page(anna: Client, east: Cluster) -> None:
    assert anna.get("/safety/east/people/").context["form"].initial["isolate_before_approval"] is True
    assert anna.post("/safety/east/people/", {"hand_approval": "mode", **WHY}).status_code == 302
    east.refresh_from_db()
    assert east.isolate_before_approval is False
    anna.post("/safety/east/people/", {"hand_approval": "mode", "isolate_before_approval": "on", **WHY})
    east.refresh_from_db()
    assert east.isolate_before_approval is True


def test_a_second_factor_is_required_on_the_safety_page(anna: Client, east: Cluster) -> None:
    assert (
        anna.post("/safety/east/people/", {"hand_approval": "mode", "second_factor": "all", **WHY}).status_code == 302
    )
    east.refresh_from_db()
    assert (east.second_factor, east.hand_approval) == ("all", "mode")
    assert str(Cluster.SecondFactor.ALL.label) in anna.get("/safety/").content.decode()


def test_a_stricter_setting_does_not_wait(anna: Client, east: Cluster) -> None:
    Cluster.objects.update(second_admin=True)
    anna.post(
        "/safety/east/people/",
        {"hand_approval": "always", **TICKED},
    )
    east.refresh_from_db()
    assert (east.hand_approval, PendingChange.objects.count()) == ("always", 0)


def test_the_page_of_a_node_shows_its_domains(anna: Client, east: Cluster, now: Any) -> None:
    labels = {"topology.kubernetes.io/rack": "rack-07", "kcover.io/switch": "leaf-3"}
    Node.objects.create(cluster=east, name="gpu-1", in_cluster=True, labels=labels, pool="team-a", created_at=now)
    shown = anna.get("/nodes/east/gpu-1/").context["domains"]
    assert [value for _, value in shown] == ["rack-07", "leaf-3", "", "team-a"]
