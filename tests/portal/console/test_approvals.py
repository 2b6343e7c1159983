"""Approvals on the console: the inbox, and the page that a link opens for whoever has it."""

import io
import logging
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kcover.faults import catalog
from kcover_portal.accounts.models import User
from kcover_portal.config import log_format
from kcover_portal.incidents.models import JobSeen
from kcover_portal.jobs import queries as jobs
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.rescue.test_actions_restart_jobs import add_job
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


def link_for(name: str, rescue: Rescue, *, maker: str = "") -> str:
    return approval_links.approve_link(rescue, User.objects.get(username=name), maker=f"user:{maker}" if maker else "")


def follow(client: Client, link: str):
    """What the browser shows after its script has posted the token behind #."""
    return client.post("/approve/", {"token": link.partition("#")[2]}, follow=True)


def answer(client: Client, link: str, said: str, reason: str = "r"):
    follow(client, link)
    return client.post("/approve/", {"answer": said, "reason": reason})


# ---------------------------------------------------------------------------------------------------------------- inbox


def test_the_inbox_shows_the_evidence_for_an_answer(person, gated: World):
    page = words(person("approver").get("/approvals/"))
    assert "gpu-1" in page
    assert "If it is denied or unanswered, no other step runs. The node stays isolated until it is released." in page
    assert "Xid 62" in page
    assert catalog.describe("xid", 62).title in page
    assert "Rule gated#1 (priority 10) matches Xid 62." in page
    assert "guards passed" in page
    assert "Drain needs approval" in page
    assert text(person("viewer").get("/")).count("/approvals/") >= 1


def test_before_anything_was_done_the_end_is_that_nothing_is(person, gated: World):
    world = gated
    services.reject(world.rescue(), actor="user:bob", reason="no", now=world.now)
    services.request(world.node(), "release", actor="user:bob", reason="back", now=world.now)
    world.work()
    world.cluster.mode, world.cluster.isolate_before_approval = "approve", False
    world.cluster.save()
    world.pass_time()
    world.fault(62)
    world.work()
    assert "If it is denied or unanswered, nothing is done to the node." in words(person("approver").get("/approvals/"))


def test_the_blast_radius_is_read_from_the_cluster(person, gated: World):
    pk = gated.rescue().pk
    assert "train/worker-0" in text(person("viewer").get(f"/approvals/{pk}/pods/"))


def test_a_person_who_cannot_answer_sees_why(person, gated: World):
    Rescue.objects.update(requested_by="user:appa")
    page = text(person("approver", name="appa").get("/approvals/"))
    assert "You cannot approve your own request." in page
    assert "/approve/" not in page
    assert "Requires the Approver role." in text(person("operator").get("/approvals/"))


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_a_request_for_two_people_shows_who_has_approved(person, gated: World):
    client = person("approver", name="ann")
    pk, plan_hash = gated.rescue().pk, gated.rescue().plan_hash
    assert "0 of 2 approved" in words(client.get("/approvals/"))
    client.post(f"/rescues/{pk}/approve/", {"reason": "seen", "plan_hash": plan_hash})
    page = words(client.get("/approvals/"))
    assert "1 of 2 approved · ann" in page
    assert "You have answered. Waiting for others." in page
    assert Approval.objects.get().via == "console"


def test_an_open_dialog_shows_that_another_person_answered(person, gated: World):
    client = person("approver", name="ann")
    pk, plan_hash = gated.rescue().pk, gated.rescue().plan_hash
    assert "faster" not in text(client.get(f"/approvals/{pk}/answered/"))
    services.approve(gated.rescue(), actor="user:bob", reason="looked at it", now=gated.now)
    reported = words(client.get(f"/approvals/{pk}/answered/"))
    assert "Someone answered this request" in reported
    assert "bob approved" in reported
    late = client.post(f"/rescues/{pk}/approve/", {"reason": "r", "plan_hash": plan_hash})
    assert late.status_code == 422
    assert "bob approved" in words(late)
    page = words(client.get("/approvals/"))
    assert "Nothing to approve" in page
    assert "looked at it" in page


def test_requests_of_another_cluster_are_hidden(person, gated: World, now):
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


def test_a_link_shows_the_evidence_and_a_get_records_no_vote(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    assert "/approve/#" in link
    assert "gpu-1" not in text(Client().get(link)), "the token behind # is not sent"
    client = Client()
    response = follow(client, link)
    page = words(response)
    assert response.status_code == 200
    assert "You are answering as ann" in page
    assert "Xid 62" in page
    assert catalog.describe("xid", 62).title in page
    assert "train/worker-0" in page
    assert "no-store" in response.headers["Cache-Control"]
    assert not Approval.objects.exists()
    cookie = client.cookies["kcover_link"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/approve/")


def test_a_link_answers_in_the_persons_name(person, gated: World):
    person("approver", name="ann")
    client, link = Client(), link_for("ann", gated.rescue())
    assert answer(client, link, "yes", "").status_code == 422
    said = answer(client, link, "yes", "from the train")
    assert "You approved this request" in words(said)
    vote = Approval.objects.get()
    assert (vote.by, vote.via, vote.approved, vote.reason) == ("user:ann", "link", True, "from the train")
    assert gated.rescue().state == "running"
    again = follow(client, link)
    assert again.status_code == 410
    assert "You already approved this request" in words(again)
    assert client.cookies["kcover_link"].value == ""


def test_a_signed_in_person_cannot_use_the_link_of_another(person, gated: World):
    """An admin makes the link of an approver and votes with it, then as themselves."""
    person("approver", name="ann")
    eve = person("admin", name="eve")
    link = link_for("ann", gated.rescue(), maker="eve")
    refused = answer(eve, link, "yes")
    assert refused.status_code == 422
    assert "You are signed in as eve" in words(refused)
    assert not Approval.objects.exists()
    answer(Client(), link, "yes")
    assert Approval.objects.get().controllers == ["user:eve"]


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_a_link_alone_is_no_second_person(person, gated: World):
    ann = person("approver", name="ann")
    link = link_for("ann", gated.rescue(), maker="ann")
    stranger = Client()
    assert "sign in as ann" in words(follow(stranger, link))
    assert answer(stranger, link, "yes").status_code == 422
    assert not Approval.objects.exists()
    assert follow(ann, link).redirect_chain[-1] == (f"/rescues/{gated.rescue().pk}/", 302)
    assert not Approval.objects.exists()


def test_the_approval_of_a_manual_request_needs_a_signed_in_person(person, gated: World):
    Rescue.objects.update(requesters=["user:olga"])
    person("approver", name="ann")
    assert answer(Client(), link_for("ann", gated.rescue()), "yes").status_code == 422
    assert not Approval.objects.exists()


def test_a_no_by_link_ends_it(person, gated: World):
    person("approver", name="ann")
    said = answer(Client(), link_for("ann", gated.rescue()), "no", "maintenance soon")
    assert "You denied this request" in words(said)
    assert gated.rescue().outcome == "rejected"


def test_a_vote_that_is_neither_yes_nor_no_is_ignored(person, gated: World):
    person("approver", name="ann")
    answer(Client(), link_for("ann", gated.rescue()), "maybe")
    assert not Approval.objects.exists()


def test_a_link_leaves_no_trace_in_the_log(person, gated: World):
    """Without the page's cookie Django logs the address; whoever reads the log must not be able to answer."""
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    token, written = link.partition("#")[2], io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(log_format.Redacted(log_format.LINE))
    logging.getLogger().addHandler(handler)
    try:
        strict = Client(enforce_csrf_checks=True)
        assert strict.post("/approve/", {"token": token, "answer": "yes", "reason": "r"}).status_code == 403
        assert strict.post(f"/approve/{token}/", {"answer": "yes", "reason": "r"}).status_code == 404
        assert strict.get(f"/approve/{token}/").status_code == 404
        try:
            raise ValueError(f"GET {link}")
        except ValueError:
            logging.getLogger("kcover_portal").exception("failed")
    finally:
        logging.getLogger().removeHandler(handler)
    lines = written.getvalue()
    assert "/approve/" in lines
    assert "django.security.csrf" in lines
    assert token not in lines
    assert not Approval.objects.exists()


@pytest.mark.parametrize(
    ("change", "status", "reported"),
    [
        ({"outcome": "expired", "state": "cancelled"}, 410, "Request expired"),
        ({"plan_hash": "f" * 16}, 410, "The plan has changed"),
        ({"state": "cancelled"}, 410, "This request is closed"),
    ],
)
def test_an_invalid_link_shows_the_reason(person, gated: World, change, status, reported):
    person("approver", name="ann")
    link, client = link_for("ann", gated.rescue()), Client()
    follow(client, link)
    Rescue.objects.update(**change)
    response = follow(Client(), link)
    assert response.status_code == status
    assert reported in text(response)
    assert client.post("/approve/", {"answer": "yes", "reason": "r"}).status_code == status
    assert not Approval.objects.exists()


def test_a_broken_link_and_one_without_a_person(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    assert follow(Client(), "#nonsense").status_code == 404
    User.objects.update(is_active=False)
    shut = follow(Client(), link)
    assert shut.status_code == 403
    assert "gpu-1" not in text(shut)


def test_a_link_uses_the_persons_language(person, gated: World):
    person("approver", name="ann")
    link = link_for("ann", gated.rescue())
    User.objects.update(language="zh-hans")
    assert 'lang="zh-hans"' in text(follow(Client(), link))


def test_an_operator_is_offered_no_cancel_of_a_two_person_question(person, gated: World):
    page = f"/rescues/{gated.rescue().pk}/cancel/"
    assert page in text(person("operator").get("/approvals/")), "one approver: as before"
    Rescue.objects.update(approvers=2)
    operator, approver = person("operator"), person("approver")
    assert page not in text(operator.get("/approvals/"))
    assert operator.post(page, {"reason": "mine"}).status_code == 403
    assert page in text(approver.get("/approvals/"))
    assert approver.post(page, {"reason": "wrong node"}).status_code == 302
    assert Entry.objects.filter(verb="rescue.question_cancelled").count() == 1


# ----------------------------------------------------------------------------------------------------------------- rest


def test_a_link_over_rest(person, gated: World):
    client = person("approver", name="ann")
    person("approver", name="bob")
    address = f"/api/v1/rescues/{gated.rescue().pk}/approval-links"
    made = client.post(address, {"approver": "bob"}, content_type="application/json")
    assert made.status_code == 201
    assert made.json()["approver"] == "bob"
    assert "You are answering as bob" in words(follow(Client(), made.json()["link"]))
    assert client.post(address, {"approver": "nobody"}, content_type="application/json").status_code == 400
    assert person("operator").post(address, {"approver": "bob"}, content_type="application/json").status_code == 403
    services.reject(gated.rescue(), actor="user:eve", reason="no", now=gated.now)
    assert client.post(address, {"approver": "bob"}, content_type="application/json").status_code == 409


# ------------------------------------------------------------------------------------------------- one after the other


HERE = {"HX-Request": "true", "HX-Current-URL": "http://testserver/approvals/"}


def test_an_answer_leads_to_the_next_request_that_the_person_can_answer(person, gated: World):
    world, client = gated, person("approver", name="bo")
    world.kube.add_node("gpu-2", gpus=8)
    world.sync()
    world.fault(62, node="gpu-2")
    world.work()
    first, second = Rescue.objects.order_by("pk")
    said = {"reason": "r", "plan_hash": first.plan_hash}
    assert client.get("/approvals/").context["placed"][0].question.rescue == first
    answer = client.post(f"/rescues/{first.pk}/reject/", said, headers=HERE)
    assert answer.headers["HX-Redirect"] == f"/approvals/?answered={first.pk}#question-{second.pk}"
    own = {**HERE, "HX-Current-URL": f"http://testserver/rescues/{second.pk}/"}
    answer = client.post(f"/rescues/{second.pk}/approve/", {**said, "plan_hash": second.plan_hash}, headers=own)
    assert answer.headers["HX-Redirect"] == f"/rescues/{second.pk}/"
    assert client.get("/approvals/?answered=nonsense").context["just"] == ""


def test_requests_about_one_job_name_each_other_and_the_whole_job(person, gated: World):
    world, client = gated, person("approver")
    jobs.forget()
    world.kube.add_node("gpu-2", gpus=8)
    world.kube.add_node("gpu-3", gpus=8)
    world.sync()
    add_job(world, "llm", "gpu-1", "gpu-2", "gpu-3")
    world.fault(62, node="gpu-2")
    world.work()
    first, second = Rescue.objects.order_by("pk")
    page = client.get(f"/approvals/{first.pk}/pods/")
    [one] = page.context["jobs"]
    assert (one.job.name, one.job.nodes, one.job.gpus) == ("llm", ("gpu-1", "gpu-2", "gpu-3"), 24)
    assert one.others == [second]
    assert f"/many/rescues/approve/?picked={first.pk},{second.pk}" in text(page)
    assert "/many/rescues/" not in text(person("viewer").get(f"/approvals/{first.pk}/pods/"))

    held = {"state": "held", "hold": "approval", "needs_human": True, "gate": 0, "opened_at": world.now}
    between = {"origin": "manual", "requested_by": "user:x", "expires_at": first.expires_at + timedelta(minutes=1)}
    other = Rescue.objects.create(cluster=world.cluster, node=world.node("gpu-3"), **held, **between)
    JobSeen.objects.all().delete()
    for name, job in (("gpu-1", "train/llm"), ("gpu-3", "train/old"), ("gpu-2", "train/llm")):
        JobSeen.objects.create(node=world.node(name), job=job, at=world.now)
    Rescue.objects.filter(pk=second.pk).update(expires_at=first.expires_at + timedelta(hours=1))
    placed = client.get("/approvals/").context["placed"]
    assert [one.question.rescue for one in placed] == [first, second, other]
    assert [(bool(one.opens), one.follows) for one in placed] == [(True, False), (False, True), (False, False)]
    assert (placed[0].opens.job, placed[0].opens.picked) == ("train/llm", f"{first.pk},{second.pk}")
    assert person("viewer").get("/approvals/").context["placed"][0].opens.picked == ""
