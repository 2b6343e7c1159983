"""Changes that loosen a limit: who may make them, and when another admin must confirm them."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Value
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.encryption import stored
from kcover_portal.fleet import queries as fleet, services, tasks
from kcover_portal.fleet.models import Cluster, PendingChange
from kcover_portal.fleet.services import cluster_settings, pending_changes, registry
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.models import Installation
from tests.codes import refused
from tests.portal.api.conftest import Api, fields, person, problem

pytestmark = pytest.mark.django_db
OFF = {"enabled": False}


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now, mode="approve")


@pytest.fixture
def ada(east: Cluster, now: datetime) -> Api:
    return person("ada", "admin", now)


@pytest.fixture
def bea(east: Cluster, now: datetime) -> Api:
    return person("bea", "admin", now)


def keep_secret(east: Cluster, secret: str) -> None:
    """Sets the secret as the shell does."""
    Cluster.objects.update(second_admin=True)
    row = Cluster.objects.get(pk=east.pk)
    row.decision_secret = secret
    row.save(update_fields=["decision_secret"])
    east.refresh_from_db()


def stored_row(change: PendingChange) -> list[str]:
    """The columns that hold something of a secret, as the database has them."""
    assert "newnew" not in str(PendingChange.objects.values().get(pk=change.pk))
    return ["secret"] if stored(change, "secret") else []


def patch(api: Api, path: str, body: dict[str, Any]) -> Any:
    return api.call("patch", f"clusters/east{path}", body)


@pytest.mark.parametrize("role", ["operator", "approver"])
@pytest.mark.parametrize("guards", [{"storm": OFF}, {"rate": OFF}, {"breaker": OFF}, {"cooldown": 0}, {"cooldown": 60}])
def test_guards_are_an_admins(east: Cluster, now: datetime, role: str, guards: dict[str, Any]) -> None:
    before = fleet.guards_of(east)
    assert problem(patch(person("olga", role, now), "/guards", guards), 403)["code"] == "role_required"
    east.refresh_from_db()
    assert fleet.guards_of(east) == before


def test_an_operator_tightens_a_mode_and_loosens_none(east: Cluster, now: datetime) -> None:
    olga = person("olga", "operator", now)
    assert patch(olga, "", {"mode": "enforce"}).status_code == 403
    assert patch(olga, "", {"mode": "shadow"}).status_code == 200
    assert patch(olga, "", {"mode": "approve"}).status_code == 403
    assert olga.post("pause", {"cluster": "east", "reason": "x"}).status_code == 200
    assert olga.post("resume", {"cluster": "east", "reason": "x", "mode": "enforce"}).status_code == 403
    assert patch(olga, "", {"mode": "enforce"}).status_code == 403, "not by way of a pause either"
    assert olga.post("resume", {"cluster": "east", "reason": "x"}).json()["mode"] == "shadow"


def test_the_mode_of_everything_is_loosened_by_an_admin(now: datetime) -> None:
    Installation.objects.create(mode="shadow")
    refusal = person("olga", "operator", now).post("resume", {"reason": "x", "mode": "enforce"})
    assert (refusal.status_code, Installation.objects.get().mode) == (403, "shadow")
    assert person("ada", "admin", now).post("resume", {"reason": "x", "mode": "enforce"}).status_code == 200


@pytest.mark.parametrize(
    "setting",
    [
        {"hand_approval": "never"},
        {"second_admin": True},
        {"second_factor": "all"},
        {"isolate_before_approval": False},
        {"on_drain_timeout": "force"},
    ],
)
def test_who_must_approve_is_a_setting_of_admins(east: Cluster, now: datetime, setting: dict[str, Any]) -> None:
    assert patch(person("olga", "approver", now), "", setting).status_code == 403
    assert patch(person("ada", "admin", now), "", setting).status_code == 200


@pytest.mark.parametrize(
    ("before", "after", "loosens"), [("all", "approvers", True), ("approvers", "off", True), ("off", "all", False)]
)
def test_fewer_people_with_a_second_factor_loosen(east: Cluster, before: str, after: str, loosens: bool) -> None:
    east.second_factor = before
    assert pending_changes.loosens_settings(east, {"second_factor": after}) is loosens


@pytest.mark.parametrize("before", ["policies", "external", "both"])
@pytest.mark.parametrize("after", ["policies", "external", "both"])
def test_an_operator_cannot_hand_the_decision_to_others(east: Cluster, now: datetime, before: str, after: str) -> None:
    """Rules that an admin set aside, or a decision system, would act at once."""
    Cluster.objects.update(decision_mode=before)
    answer = patch(person("olga", "operator", now), "", {"decision_mode": after})
    assert answer.status_code == (200 if before in ("both", after) else 403)
    assert patch(person("ada", "admin", now), "", {"decision_mode": after}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/guards", {"storm": OFF}, lambda east: fleet.guards_of(east).storm.enabled is False),
        ("", {"mode": "enforce"}, lambda east: east.mode == "enforce"),
        ("", {"hand_approval": "never"}, lambda east: east.hand_approval == "never"),
        ("", {"second_admin": False}, lambda east: east.second_admin is False),
        ("", {"on_drain_timeout": "proceed"}, lambda east: east.on_drain_timeout == "proceed"),
        ("", {"isolate_before_approval": True}, lambda east: east.isolate_before_approval is True),
        ("", {"decision_mode": "both"}, lambda east: east.decision_mode == "both"),
        ("", {"topology": {"pool": "kubernetes.io/hostname"}}, lambda east: bool(east.topology)),
    ],
)
def test_a_second_admin_confirms_loosening_changes(
    east: Cluster, ada: Api, bea: Api, path: str, body: dict[str, Any], read: Any
) -> None:
    Cluster.objects.update(second_admin=True, isolate_before_approval=False, decision_mode="external")
    waits = patch(ada, path, {**body, "reason": "tonight"})
    assert (waits.status_code, waits.json()["state"]) == (202, "open")
    east.refresh_from_db()
    assert not read(east)
    address = f"changes/{waits.json()['id']}"
    assert problem(ada.post(f"{address}/confirm"), 409)["code"] == "change_own"
    assert bea.post(f"{address}/confirm").json()["state"] == "confirmed"
    east.refresh_from_db()
    assert read(east)
    assert problem(bea.post(f"{address}/confirm"), 409)["code"] == "change_closed"
    verbs = [entry.verb for entry in Entry.objects.filter(cluster="east").order_by("pk")]
    assert verbs[:2] == ["change.requested", "change.confirmed"]


def test_a_resume_in_a_looser_mode_waits(east: Cluster, ada: Api, bea: Api) -> None:
    Cluster.objects.update(second_admin=True)
    for body in ({"reason": "go", "mode": "enforce", "cluster": "east"}, {"reason": "go", "mode": "enforce"}):
        Cluster.objects.update(mode="paused", resumes_as="approve")
        Installation.objects.update_or_create(pk=1, defaults={"mode": "shadow"})
        waits = ada.post("resume", body)
        assert waits.status_code == 202, waits.content
        assert bea.post(f"changes/{waits.json()['id']}/confirm").status_code == 200
        east.refresh_from_db()
        assert "enforce" in (east.mode, Installation.objects.get().mode)


def test_tightening_changes_are_immediate(east: Cluster, ada: Api) -> None:
    Cluster.objects.update(second_admin=True)
    assert patch(ada, "/guards", {"breaker": {"limit": 2}, "floor": {"percent": 90}}).status_code == 200
    assert patch(ada, "", {"mode": "shadow"}).status_code == 200
    assert patch(ada, "", {"topology": {"pool": ""}, "decision_mode": "external"}).status_code == 200
    assert ada.post("pause", {"reason": "x"}).status_code == 200
    assert not PendingChange.objects.exists()


def test_two_accounts_of_one_admin_cannot_confirm(east: Cluster, ada: Api, bea: Api) -> None:
    """Ada sets bea's password and confirms as bea."""
    Cluster.objects.update(second_admin=True)
    change = patch(ada, "", {"mode": "enforce"}).json()["id"]
    accounts.set_password(User.objects.get(username="bea"), "another long one 1", actor="user:ada", now=timezone.now())
    client = Client()
    client.force_login(User.objects.get(username="bea"))
    assert problem(Api(client=client).post(f"changes/{change}/confirm"), 409)["code"] == "change_own"
    assert PendingChange.objects.get().state == "open"


def test_a_change_applies_only_to_the_settings_it_was_requested_for(east: Cluster, ada: Api, bea: Api) -> None:
    Cluster.objects.update(second_admin=True)
    change = patch(ada, "/guards", {"breaker": {"limit": 50}}).json()["id"]
    patch(bea, "/guards", {"breaker": {"limit": 1}})
    assert problem(bea.post(f"changes/{change}/confirm"), 409)["code"] == "change_outdated"
    assert bea.post(f"changes/{change}/reject", {"reason": "no"}).json()["state"] == "rejected"


def test_a_change_requested_by_a_disabled_admin_cannot_be_confirmed(east: Cluster, ada: Api, bea: Api) -> None:
    Cluster.objects.update(second_admin=True)
    change = patch(ada, "", {"mode": "enforce"}).json()["id"]
    accounts.disable(User.objects.get(username="ada"), actor="user:eve", now=timezone.now())
    assert problem(bea.post(f"changes/{change}/confirm"), 409)["code"] == "vote_of_gone"
    assert bea.client.post(f"/safety/changes/{change}/confirm/", {"reason": "agreed"}).status_code == 422
    east.refresh_from_db()
    assert east.mode == "approve"
    assert bea.post(f"changes/{change}/reject", {"reason": "no"}).json()["state"] == "rejected"


def test_rules_in_place_of_a_silent_decision_system_wait(east: Cluster, ada: Api) -> None:
    Cluster.objects.update(second_admin=True, decision_mode="external", decision_fallback="hold")
    assert patch(ada, "", {"decision_fallback": "policies"}).status_code == 202
    Cluster.objects.update(decision_fallback="policies")
    assert patch(ada, "", {"decision_fallback": "hold"}).status_code == 200


def test_another_decision_system_waits_and_its_keys_are_never_shown(east: Cluster, ada: Api, bea: Api) -> None:
    key, old = "aVeryRandomKey0123456789xyz", "anOldRandomKey9876543210abc"
    Cluster.objects.update(second_admin=True, decision_url=f"https://decisions.example/{old}?token=t0ken")
    assert "decision_url" in fields(patch(ada, "", {"decision_url": "https://decisions.example/…?…"}))
    waits = patch(ada, "", {"decision_url": f"https://other.example/plan/{key}"})
    assert waits.status_code == 202
    after, before = waits.json()["changes"]["decision_url"], waits.json()["before"]["decision_url"]
    assert re.fullmatch(r"https://other\.example/plan/… #[0-9a-f]{6}", after)
    assert re.fullmatch(r"https://decisions\.example/…\?… #[0-9a-f]{6}", before)
    assert "decision_url" in fields(patch(bea, "", {"decision_url": after}))
    page = bea.client.get("/safety/").content.decode()
    assert after in page
    confirmed = bea.post(f"changes/{waits.json()['id']}/confirm")
    assert confirmed.json()["state"] == "confirmed"
    east.refresh_from_db()
    assert east.decision_url.endswith(key)
    told = [page, confirmed.content.decode(), bea.get("changes").content.decode()]
    told += [str(entry.data) for entry in Entry.objects.filter(cluster="east")]
    assert not [text for text in told if key in text or old in text or "t0ken" in text]


@pytest.mark.parametrize("url", ["", "https://other.example/plan"])
def test_a_decision_system_that_stays_does_not_wait(east: Cluster, ada: Api, url: str) -> None:
    Cluster.objects.update(second_admin=True, decision_url=url)
    assert patch(ada, "", {"decision_url": url}).status_code == 200
    Cluster.objects.update(second_admin=False)
    assert patch(ada, "", {"decision_url": "https://another.example"}).status_code == 200


def test_a_change_waits_a_day(east: Cluster, now: datetime) -> None:
    row = pending_changes.request(
        east, "settings", {"mode": "enforce"}, actor="user:ada", requesters=["user:ada"], reason="", now=now
    )
    with refused(pending_changes.ChangeRefused, "change_closed"):
        pending_changes.confirm(row, actor="user:bea", names=[], requester_is_gone=False, now=now + timedelta(days=1))


def test_two_addresses_that_differ_in_a_key_do_not_look_the_same(east: Cluster, ada: Api) -> None:
    Cluster.objects.update(second_admin=True, decision_url="https://decisions.example/?token=one")
    waits = patch(ada, "", {"decision_url": "https://decisions.example/?token=two"}).json()
    assert waits["changes"]["decision_url"] != waits["before"]["decision_url"]


@pytest.mark.parametrize("cleared", [False, True])
def test_another_secret_waits_and_is_never_shown(east: Cluster, ada: Api, bea: Api, cleared: bool) -> None:
    """Whoever knows the secret can sign callbacks as the decision system. A system without it may not answer."""
    old, new = "old" * 10, "" if cleared else "new" * 10
    keep_secret(east, old)
    waits = patch(ada, "", {"decision_secret": new, "mode": "enforce", "reason": "rotation"})
    said = "cleared" if cleared else "replaced"
    assert (waits.status_code, waits.json()["changes"]["decision_secret"]) == (202, said)
    assert waits.json()["before"]["decision_secret"] == "set"
    told = [waits.content.decode(), bea.client.get("/safety/").content.decode(), bea.get("changes").content.decode()]
    assert stored_row(PendingChange.objects.get()) == ([] if cleared else ["secret"]), "encrypted, and nowhere else"
    assert fleet.callback_secrets(east, now=timezone.now()) == [old]
    assert bea.post(f"changes/{waits.json()['id']}/confirm").json()["state"] == "confirmed"
    east.refresh_from_db()
    assert (east.decision_secret, east.mode) == (new, "enforce")
    assert PendingChange.objects.get().secret == ""
    told += [str(entry.data) for entry in Entry.objects.filter(cluster="east")]
    assert not [text for text in told if old in text or (new and new in text)]


def test_a_secret_that_was_changed_meanwhile_is_not_replaced(east: Cluster, ada: Api, bea: Api) -> None:
    keep_secret(east, "old" * 10)
    change = patch(ada, "", {"decision_secret": "new" * 10}).json()["id"]
    keep_secret(east, "other" * 10)
    assert problem(bea.post(f"changes/{change}/confirm"), 409)["code"] == "change_outdated"
    assert bea.post(f"changes/{change}/reject", {"reason": "no"}).json()["state"] == "rejected"
    assert PendingChange.objects.get().secret == ""


def test_a_secret_of_an_expired_change_is_deleted(east: Cluster, ada: Api) -> None:
    keep_secret(east, "old" * 10)
    patch(ada, "", {"decision_secret": "new" * 10})
    PendingChange.objects.update(expires_at=timezone.now())
    tasks.prune()
    assert not PendingChange.objects.exclude(secret="").exists()


@pytest.mark.parametrize("fallback", ["hold", "policies"])
def test_a_system_whose_silence_holds_the_node_may_be_silenced_at_once(
    east: Cluster, ada: Api, bea: Api, fallback: str
) -> None:
    """A stolen secret is cleared by one admin, where no rule acts instead. So is a shorter time for an answer."""
    keep_secret(east, "old" * 10)
    Cluster.objects.update(decision_fallback=fallback, decision_timeout=20)
    status = 200 if fallback == "hold" else 202
    assert patch(ada, "", {"decision_secret": ""}).status_code == status
    assert patch(ada, "", {"decision_timeout": 5}).status_code == status
    assert patch(ada, "", {"decision_timeout": 30}).status_code == 200
    both = patch(ada, "", {"decision_timeout": 2, "decision_fallback": "policies"})
    assert both.status_code == 202, "what holds at present does not count"


def test_a_secret_that_is_gone_clears_nothing(east: Cluster, ada: Api, bea: Api) -> None:
    """A process whose clock is ahead deletes it, and one whose clock is behind still sees the change open."""
    keep_secret(east, "old" * 10)
    change = patch(ada, "", {"decision_secret": "new" * 10}).json()["id"]
    pending_changes.forget_expired(now=timezone.now() + timedelta(days=2))
    assert problem(bea.post(f"changes/{change}/confirm"), 409)["code"] == "change_closed"
    east.refresh_from_db()
    assert east.decision_secret == "old" * 10


def test_a_secret_without_its_key_is_refused_on_the_page(east: Cluster, ada: Api, bea: Api) -> None:
    keep_secret(east, "old" * 10)
    change = patch(ada, "", {"decision_secret": "new" * 10}).json()["id"]
    PendingChange.objects.filter(pk=change).update(secret=Value("e1:k9:broken"))
    page = bea.client.post(f"/safety/changes/{change}/confirm/", {"reason": "agreed"})
    assert page.status_code == 422
    assert PendingChange.objects.get().state == "open"


def test_what_a_change_relies_on_may_not_change_before_it_is_confirmed(east: Cluster, ada: Api, bea: Api) -> None:
    """Ada asks for rules in place of a silent system, and then silences it: each of these steps is allowed alone."""
    keep_secret(east, "old" * 10)
    Cluster.objects.update(decision_mode="external", decision_fallback="hold", decision_timeout=20)
    change = patch(ada, "", {"decision_fallback": "policies"}).json()["id"]
    lines = bea.client.get("/safety/").content.decode()
    assert "decision_timeout: 20" in lines
    assert "decision_secret: set" in lines
    assert patch(ada, "", {"decision_timeout": 1, "decision_secret": ""}).status_code == 200
    assert problem(bea.post(f"changes/{change}/confirm"), 409)["code"] == "change_outdated"


def test_a_system_that_is_asked_no_more_waits(east: Cluster, ada: Api) -> None:
    """In mode ``both`` its answer, or its silence, can hold a node back."""
    Cluster.objects.update(second_admin=True, decision_mode="both", decision_url="https://decisions.example")
    assert patch(ada, "", {"decision_mode": "policies"}).status_code == 202
    Cluster.objects.update(decision_url="")
    assert patch(ada, "", {"decision_mode": "policies"}).status_code == 200


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (
            "settings",
            {"decision_fallback": "hold", "decision_timeout": 1, "decision_secret": ""},
            {"decision_fallback": "policies"},
        ),
        ("guards", {"breaker": {"limit": 1}}, {"breaker": {"limit": 5}}),
    ],
)
def test_two_changes_at_once_that_tighten_alone_do_not_loosen_together(
    east: Cluster, kind: str, first: dict[str, Any], second: dict[str, Any], now: datetime
) -> None:
    keep_secret(east, "old" * 10)
    Cluster.objects.update(decision_mode="external", decision_timeout=20)
    cluster_settings.set_guards(east, {"breaker": {"limit": 10}}, actor="user:ada", reason="", now=now)
    stale = Cluster.objects.get(pk=east.pk)
    change = cluster_settings.set_guards if kind == "guards" else cluster_settings.set_cluster
    for body in (first, second):
        judge = pending_changes.loosens_guards if kind == "guards" else pending_changes.loosens_settings
        assert not judge(stale, body), "each was judged before the other one"
    said = {"actor": "user:ada", "reason": "", "now": now}
    change(east, first, **said, check=pending_changes.judged_again(kind, first, may_loosen=True))
    with refused(pending_changes.ChangeRefused, "settings_changed_meanwhile"):
        change(east, second, **said, check=pending_changes.judged_again(kind, second, may_loosen=True))


@pytest.mark.parametrize("tightened", ["the mode", "a second admin"])
def test_a_pause_does_not_end_in_a_mode_that_loosens_by_a_change_at_the_same_moment(
    east: Cluster, tightened: str, now: datetime
) -> None:
    said = {"actor": "user:ada", "reason": "", "now": now}
    services.pause(cluster=east, **said)
    stale = Cluster.objects.get(pk=east.pk)
    assert not pending_changes.loosens_mode(stale, "approve"), "judged before the other change"
    if tightened == "the mode":
        Cluster.objects.update(resumes_as="shadow")
    else:
        Cluster.objects.update(resumes_as="shadow", second_admin=True)
    with refused(pending_changes.ChangeRefused, "settings_changed_meanwhile"):
        pending_changes.resume(stale, "approve", may_loosen=tightened == "a second admin", **said)
    east.refresh_from_db()
    assert east.mode == "paused"
    pending_changes.resume(stale, None, may_loosen=False, **said)
    east.refresh_from_db()
    assert east.mode == "shadow"


def test_a_change_of_the_mode_does_not_end_a_pause_of_the_same_moment(east: Cluster, now: datetime) -> None:
    said = {"actor": "user:ada", "reason": "", "now": now}
    stale = Cluster.objects.get(pk=east.pk)
    services.pause(cluster=east, **said)
    for mode in ("approve", "shadow"):
        with refused(pending_changes.ChangeRefused, "settings_changed_meanwhile"):
            pending_changes.change(stale, "settings", {"mode": mode}, may_loosen=True, **said)
    pending_changes.change(stale, "settings", {"mode": "shadow"}, may_loosen=False, may_resume=True, **said)
    east.refresh_from_db()
    assert east.mode == "shadow"


@pytest.mark.parametrize("known", [True, False])
def test_a_cluster_that_is_registered_as_paused_resumes_no_looser_than_before(
    east: Cluster, ada: Api, now: datetime, *, known: bool
) -> None:
    """By an operator, and past the second admin."""
    Cluster.objects.update(mode="shadow", resumes_as="enforce", second_admin=True)  # of an earlier pause
    name = "east" if known else "west"
    registry.add(name, actor="cli", now=now, replace=known, mode="paused", in_cluster=True)
    olga = person("olga", "operator", now)
    assert olga.post("resume", {"cluster": name, "reason": "go"}).status_code == 200
    assert Cluster.objects.get(name=name).mode == "shadow"


@pytest.mark.parametrize("secret", ["short", "x" * 201])
def test_a_secret_of_the_wrong_length_is_refused_before_it_waits(east: Cluster, ada: Api, secret: str) -> None:
    keep_secret(east, "old" * 10)
    assert "decision_secret" in fields(patch(ada, "", {"decision_secret": secret}))
    assert not PendingChange.objects.exists()


def test_an_operator_cannot_confirm_a_change(east: Cluster, ada: Api, now: datetime) -> None:
    Cluster.objects.update(second_admin=True)
    change = patch(ada, "", {"mode": "enforce"}).json()["id"]
    olga = person("olga", "approver", now)
    assert [one["id"] for one in olga.get("changes").json()["results"]] == [change]
    assert olga.post(f"changes/{change}/confirm").status_code == 403
    assert (
        person("zoe", "admin", now, cluster=Cluster.objects.create(name="west", created_at=now))
        .post(f"changes/{change}/confirm")
        .status_code
        == 404
    )
    assert ada.post(f"changes/{change}/explode").status_code == 404


def test_the_console_asks_the_second_admin(east: Cluster, ada: Api, bea: Api) -> None:
    Cluster.objects.update(second_admin=True)
    ada.client.post("/safety/east/mode/", {"mode": "enforce", "reason": "tonight"})
    east.refresh_from_db()
    assert east.mode == "approve"
    pk = PendingChange.objects.get().pk
    assert f"/safety/changes/{pk}/confirm/" in bea.client.get("/safety/").content.decode()
    assert ada.client.post(f"/safety/changes/{pk}/confirm/", {"reason": "me"}).status_code == 422
    assert bea.client.post(f"/safety/changes/{pk}/confirm/", {"reason": "agreed"}).status_code == 302
    east.refresh_from_db()
    assert east.mode == "enforce"
