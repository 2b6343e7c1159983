"""Approvals on the console: the inbox, and the page that a link opens for whoever has it."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts.models import User
from kcover_portal.rescue import services
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import World


def text(response) -> str:
    return response.content.decode()


def words(response) -> str:
    """What a reader sees, without the markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text(response)))


@pytest.fixture
def gated(request, db: None):
    world = World(policy=GATED % getattr(request, "param", 1))
    world.now = timezone.now()
    world.kube.add_pod("train", "worker-0", node="gpu-1")
    world.fault(62)
    world.work()
    yield world
    world.uninstall()


def link_for(name: str, rescue: Rescue) -> str:
    return approval_links.approve_link(rescue, User.objects.get(username=name))


# ---------------------------------------------------------------------------------------------------------------- inbox


def test_the_inbox_shows_what_an_answer_needs(person, gated: World):
    page = words(person("approver").get("/approvals/"))
    assert "gpu-1" in page
    assert "If unanswered, the request expires. The node stays isolated and is not rebooted." in page
    assert "Xid 62" in page
    assert "Rule gated#1 (priority 10) matches xid 62." in page
    assert "guards passed" in page
    assert "Drain needs approval" in page
    assert text(person("viewer").get("/")).count("/approvals/") >= 1


def test_before_anything_was_done_the_end_is_that_nothing_is(person, gated: World):
    world = gated
    services.reject(world.rescue(), actor="user:bob", reason="no", now=world.now)
    services.request(world.node(), "release", actor="user:bob", reason="back", now=world.now)
    world.work()
    world.cluster.mode = "approve"
    world.cluster.save()
    world.pass_time()
    world.fault(62)
    world.work()
    assert "If unanswered, the request expires and the node is left as it is." in words(
        person("approver").get("/approvals/")
    )


def test_the_blast_radius_is_asked_of_the_cluster(person, gated: World):
    pk = gated.rescue().pk
    assert "train/worker-0" in text(person("viewer").get(f"/approvals/{pk}/pods/"))


def test_who_may_not_answer_is_told_why(person, gated: World):
    Rescue.objects.update(requested_by="user:appa")
    page = text(person("approver", name="appa").get("/approvals/"))
    assert "You cannot approve your own request." in page
    assert "/approve/" not in page
    assert "Requires the Approver role." in text(person("operator").get("/approvals/"))


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_four_eyes_say_whose_are_there(person, gated: World):
    client = person("approver", name="ann")
    pk, plan_hash = gated.rescue().pk, gated.rescue().plan_hash
    assert "0 of 2 approved" in words(client.get("/approvals/"))
    client.post(f"/rescues/{pk}/approve/", {"reason": "seen", "plan_hash": plan_hash})
    page = words(client.get("/approvals/"))
    assert "1 of 2 approved: ann" in page
    assert "You have answered. Waiting for others." in page
    assert Approval.objects.get().via == "console"


def test_an_open_dialog_hears_that_somebody_else_was_faster(person, gated: World):
    client = person("approver", name="ann")
    pk, plan_hash = gated.rescue().pk, gated.rescue().plan_hash
    assert "faster" not in text(client.get(f"/approvals/{pk}/answered/"))
    services.approve(gated.rescue(), actor="user:bob", reason="looked at it", now=gated.now)
    told = words(client.get(f"/approvals/{pk}/answered/"))
    assert "This request was already answered" in told
    assert "bob approved" in told
    late = client.post(f"/rescues/{pk}/approve/", {"reason": "r", "plan_hash": plan_hash})
    assert late.status_code == 422
    assert "bob approved" in words(late)
    page = words(client.get("/approvals/"))
    assert "Nothing to approve" in page
    assert "looked at it" in page


def test_what_another_cluster_asks_is_not_seen(person, gated: World, now):
    from_elsewhere = person("admin", cluster=type(gated.cluster).objects.create(name="west", created_at=now))
    assert "gpu-1" not in text(from_elsewhere.get("/approvals/"))
    assert from_elsewhere.get(f"/approvals/{gated.rescue().pk}/pods/").status_code == 404


# ---------------------------------------------------------------------------------------------------------------- links


def test_an_approver_copies_a_link_for_another(person, gated: World):
    client = person("approver", name="ann")
    person("approver", name="bob")
    person("operator", name="olaf")
    page = f"/approvals/{gated.rescue().pk}/link/"
    asked = text(client.get(page))
    assert 'value="bob"' in asked
    assert "olaf" not in asked
    made = text(client.post(page, {"approver": "bob"}))
    assert "http://testserver/approve/" in made
    assert client.post(page, {"approver": "olaf"}).status_code == 422
    assert person("operator").get(page).status_code == 403


def test_a_link_shows_the_evidence_and_a_get_decides_nothing(person, gated: World):
    person("approver", name="ann")
    response = Client().get(link_for("ann", gated.rescue()))
    page = words(response)
    assert response.status_code == 200
    assert "You are answering as ann" in page
    assert "Xid 62" in page
    assert "train/worker-0" in page
    assert "no-store" in response.headers["Cache-Control"]
    assert not Approval.objects.exists()


def test_a_link_answers_in_the_persons_name_whoever_is_signed_in(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    viewer = person("viewer", name="vera")
    assert "vera" not in text(viewer.get(link))
    assert viewer.post(link, {"answer": "yes", "reason": ""}).status_code == 422
    said = viewer.post(link, {"answer": "yes", "reason": "from the train"})
    assert "You approved this request" in words(said)
    vote = Approval.objects.get()
    assert (vote.by, vote.via, vote.approved, vote.reason) == ("user:ann", "link", True, "from the train")
    assert gated.rescue().state == "running"
    again = viewer.post(link, {"answer": "no", "reason": "again"})
    assert again.status_code == 410
    assert "You already approved this request" in words(again)


def test_a_no_by_link_ends_it(person, gated: World):
    person("approver", name="ann")
    said = Client().post(link_for("ann", gated.rescue()), {"answer": "no", "reason": "maintenance soon"})
    assert "You denied this request" in words(said)
    assert gated.rescue().outcome == "rejected"


def test_neither_yes_nor_no_decides_nothing(person, gated: World):
    person("approver", name="ann")
    Client().post(link_for("ann", gated.rescue()), {"answer": "maybe", "reason": "r"})
    assert not Approval.objects.exists()


def test_a_link_needs_the_pages_own_form(person, gated: World):
    person("approver", name="ann")
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(link_for("ann", gated.rescue()), {"answer": "yes", "reason": "r"}).status_code == 403
    assert not Approval.objects.exists()


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"outcome": "expired", "state": "cancelled"}, 410, "Request expired"),
        ({"plan_hash": "f" * 16}, 410, "The plan has changed"),
        ({"state": "cancelled"}, 410, "This request is closed"),
    ],
)
def test_a_link_that_opens_nothing_says_why(person, gated: World, change, status, told):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    Rescue.objects.update(**change)
    response = Client().get(link)
    assert response.status_code == status
    assert told in text(response)
    assert Client().post(link, {"answer": "yes", "reason": "r"}).status_code == status
    assert not Approval.objects.exists()


def test_a_broken_link_and_one_without_a_person(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    assert Client().get("/approve/nonsense/").status_code == 404
    User.objects.update(is_active=False)
    shut = Client().get(link)
    assert shut.status_code == 403
    assert "gpu-1" not in text(shut)


def test_a_link_speaks_the_persons_language(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    User.objects.update(language="zh-hans")
    assert 'lang="zh-hans"' in text(Client().get(link))


# ----------------------------------------------------------------------------------------------------------------- rest


def test_a_link_over_rest(person, gated: World):
    client = person("approver", name="ann")
    person("approver", name="bob")
    address = f"/api/v1/rescues/{gated.rescue().pk}/approval-links"
    made = client.post(address, {"approver": "bob"}, content_type="application/json")
    assert made.status_code == 201
    assert made.json()["approver"] == "bob"
    path = made.json()["link"].removeprefix("http://testserver")
    assert "You are answering as bob" in words(Client().get(path))
    assert client.post(address, {"approver": "nobody"}, content_type="application/json").status_code == 400
    assert person("operator").post(address, {"approver": "bob"}, content_type="application/json").status_code == 403
    services.reject(gated.rescue(), actor="user:eve", reason="no", now=gated.now)
    assert client.post(address, {"approver": "bob"}, content_type="application/json").status_code == 409
