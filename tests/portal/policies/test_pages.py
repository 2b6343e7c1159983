"""The console's policy pages: the archive, standbys, what changed, the way back."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, PolicyTry, Revision
from kcover_portal.policies.services import shipped
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.shared_reads import pack_previews
from tests.portal.policies.texts import STANDBY_EXAMPLE, policy
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
STANDBY_PAGE = "/standby-policies/cluster-warm-standby/"
Browser = Callable[[str], Client]


@pytest.fixture
def browser(now: datetime) -> Browser:
    def sign_in(role: str) -> Client:
        user = accounts.make_user(role, password="long-enough-1", role=role, created_by="test", now=now)
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def three(now: datetime) -> None:
    """A policy of three revisions, and a standby policy."""
    for codes in ('["62"]', '["63"]', '["64"]'):
        services.apply(policy("a", codes=codes), author="user:anna", reason=f"for {codes}", now=now)
    services.apply(STANDBY_EXAMPLE, author="user:anna", reason="", now=now)


def page(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    return str(response.content.decode())


def test_both_kinds_and_the_archive_are_listed(three: None, browser: Browser, now: datetime) -> None:
    client = browser("viewer")
    shown = page(client.get("/policies/"))
    assert 'href="/policies/a/"' in shown
    assert f'href="{STANDBY_PAGE}"' in shown
    assert "Disabled" not in shown
    services.delete("a", author="user:bo", reason="too wide", now=now)
    shown = page(client.get("/policies/"))
    assert "Disabled" in shown
    assert "bo · too wide" in shown
    assert "bo · too wide" in page(client.get("/policies/a/"))


def test_a_standby_policy_has_its_page_and_its_editor(three: None, browser: Browser) -> None:
    client = browser("admin")
    shown = page(client.get(STANDBY_PAGE))
    assert shown.count("env=dev") == 2
    assert f'href="{STANDBY_PAGE}edit/"' in shown
    text = STANDBY_EXAMPLE.replace("targetNode:\n        env: dev", "targetNode:\n        env: spare")
    answer = client.post(f"{STANDBY_PAGE}edit/", {"text": text, "reason": "spares", "expected": "1"})
    assert (answer.status_code, answer.url) == (302, STANDBY_PAGE)
    assert queries.standby_rules()[0].target == {"env": "spare"}
    assert client.get("/policies/cluster-warm-standby/").status_code == 404


def test_any_two_revisions_are_compared(three: None, browser: Browser) -> None:
    client = browser("viewer")
    shown = page(client.get("/policies/a/diff/"))
    assert "Revision 2 to 3" in shown
    assert "spec.rules[0].errorCode" in shown
    whole = page(client.get("/policies/a/diff/?from=1&to=3"))
    assert "<del>-       errorCode: [&quot;62&quot;]" in whole
    assert "<ins>+       errorCode: [&quot;64&quot;]" in whole
    assert "No differences" in page(client.get("/policies/a/diff/?from=2&to=2"))
    for nowhere in ("/policies/a/diff/?from=9", "/policies/b/diff/", "/standby-policies/a/diff/"):
        assert client.get(nowhere).status_code == 404


def test_a_rollback_asks_for_a_reason_and_shows_the_changes(three: None, browser: Browser) -> None:
    client = browser("admin")
    ask = "/policies/a/rollback/?revision=1"
    assert ask in page(client.get("/policies/a/"))
    asked = page(client.get(ask, headers={"HX-Request": "true"}))
    assert "Roll back to revision 1" in asked
    assert "<ins>+       errorCode: [&quot;62&quot;]" in asked
    assert "<html" not in asked
    page(client.post(ask, {"reason": "", "expected": "3"}), 422)
    assert "You edited revision 2 of a" in page(client.post(ask, {"reason": "oops", "expected": "2"}), 422)
    answer = client.post(ask, {"reason": "oops", "expected": "3"})
    assert (answer.status_code, answer.url) == (302, "/policies/a/")
    newest = Revision.objects.get(policy__name="a", number=4)
    assert (newest.reason, newest.because["code"], newest.author) == ("oops", "policy_rolled_back", "user:admin")
    assert "already active" in page(client.post("/policies/a/rollback/?revision=4", {"reason": "x"}), 422)
    page(client.get("/policies/a/rollback/?revision=9"), 404)
    page(client.get("/policies/a/rollback/"), 404)


def test_a_policy_is_archived_with_a_reason_and_brought_back(three: None, browser: Browser) -> None:
    client = browser("admin")
    assert "/policies/a/archive/" in page(client.get("/policies/a/"))
    page(client.get("/policies/a/archive/"))
    page(client.post("/policies/a/archive/", {"reason": "", "expected": "3"}), 422)
    moved = client.post("/policies/a/archive/", {"reason": "too wide", "expected": "3"}, headers={"HX-Request": "true"})
    assert moved.headers["HX-Redirect"] == "/policies/a/"
    assert Policy.objects.get(name="a").archived_because["params"] == {"text": "too wide"}
    page(client.get("/policies/a/archive/"), 404)
    assert client.post("/policies/a/rollback/?revision=3", {"reason": "needed"}).status_code == 302
    assert queries.candidates()[0].rule.codes == ("64",)


def test_a_draft_is_compared_with_the_policy_in_force(three: None, browser: Browser) -> None:
    said = page(browser("admin").post("/policies/validate/", {"text": policy("a", codes='["48"]')}))
    assert "Changes since a, revision 3" in said
    assert "<ins>+       errorCode: [&quot;48&quot;]" in said


def test_the_conditions_and_limits_of_a_rule_are_shown(browser: Browser) -> None:
    extra = (
        '      match: {sxid: ["11004"], checks: [remapped], kinds: [agent], minCount: 3, within: 1h}\n'
        "      budget: 10%\n      cooldown: 2h\n      approval: {approvers: 2}\n"
    )
    said = page(browser("admin").post("/policies/validate/", {"text": policy("a", extra=extra)}))
    for words in (
        "SXid 11004",
        "checks remapped",
        "every agent",
        "at least 3 in",
        "2 approvals required",
        "10% of the nodes",
    ):
        assert words in said


def test_a_portal_without_policies_leads_to_the_packs(browser: Browser) -> None:
    client = browser("admin")
    link = 'href="/policy-packs/">Choose a policy pack'
    assert link in page(client.get("/policies/"))
    assert client.post("/policy-packs/install/", {"pack": "nvidia", "mode": "approve"}).url == "/policies/"
    assert link not in page(client.get("/policies/"))
    assert {one.rule.mode for one in queries.candidates()} == {"approve"}
    assert "installed" in page(client.get("/policy-packs/"))


def test_the_page_of_packs_shows_their_rules_to_everybody(browser: Browser) -> None:
    shown = page(browser("viewer").get("/policy-packs/"))
    assert all(f'id="pack-{name}"' in shown for name in shipped.PACKS)
    for words in ("preflight abnormal, slow", "metax_gpus", "trainy.konduktor.ai/faulty", "kce-global#1"):
        assert words in shown
    assert "/policy-packs/install/" not in shown


def test_a_pack_is_tried_on_the_faults_so_far(browser: Browser) -> None:
    world = World(policy="")
    world.fault(62)
    world.fault(13)
    world.uninstall()
    Incident.objects.update(opened_at=timezone.now())
    client = browser("admin")
    begun = client.post("/policy-packs/try/", {"pack": "kce"}).url
    tried = PolicyTry.objects.get()
    assert begun == f"/policy-tries/{tried.pk}/"
    assert "Tried on 0 of 2 faults" in page(client.get("/policy-packs/"))
    assert client.post("/policy-packs/try/", {"pack": "kce"}).status_code == 429
    policy_tries.advance(tried.pk, clock=timezone.now)
    assert "Tried on 2 of 2 faults" in page(client.get("/policy-packs/"))
    assert "kce#1" in page(client.get(begun))


@pytest.mark.parametrize("what", [{"pack": "none"}, {}, {"pack": "kce", "mode": "paused"}])
def test_an_unknown_pack_or_mode_is_refused(browser: Browser, what: dict[str, str]) -> None:
    client = browser("admin")
    assert client.post("/policy-packs/install/", what).status_code == 422
    if "mode" not in what:
        assert client.post("/policy-packs/try/", what).status_code == 422
    assert queries.candidates() == ()


def test_only_admins_change_anything(three: None, browser: Browser) -> None:
    client = browser("approver")
    for address in ("/policies/a/rollback/?revision=1", "/policies/a/archive/"):
        assert client.get(address).status_code == 403
        assert client.post(address, {"reason": "x"}).status_code == 403
    assert client.post("/policy-packs/install/", {"pack": "kce"}).status_code == 403
    assert client.post("/policy-packs/try/", {"pack": "kce"}).status_code == 403
    shown = page(client.get("/policies/a/"))
    assert "rollback" not in shown
    assert "archive" not in shown


def test_a_portal_without_policies_asks_for_a_first_pack(browser: Browser) -> None:
    world = World(policy="")
    for code in (62, 79, 13):
        world.fault(code)
    world.uninstall()
    link = 'href="/policy-packs/first/"'
    admin = browser("admin")
    assert link in page(admin.get("/"))
    shown = page(admin.get("/policy-packs/first/"))
    assert "2 of 3 match" in shown  # nvidia and kce; a program's fault matches nothing
    assert "cordon, drain, reboot" in shown
    assert 'value="shadow"' in shown
    assert "/policy-packs/first/dismiss/" not in page(browser("viewer").get("/policy-packs/first/"))
    admin.post("/policy-packs/install/", {"pack": "nvidia", "mode": "shadow"})
    assert link not in page(admin.get("/"))
    assert not pack_previews.is_first_choice_open()


def test_an_admin_puts_the_choice_off_once(browser: Browser) -> None:
    world = World(policy="")
    world.uninstall()
    assert browser("operator").post("/policy-packs/first/dismiss/").status_code == 403
    admin = browser("admin")
    for _ in range(2):
        assert admin.post("/policy-packs/first/dismiss/").url == "/overview/"
    assert 'href="/policy-packs/first/"' not in page(admin.get("/"))
    assert Entry.objects.filter(verb="policy.choice_dismissed").count() == 1


@pytest.mark.parametrize(("role", "target"), [("admin", "/policy-packs/first/"), ("viewer", "/")])
def test_the_first_sign_in_of_an_admin_leads_to_the_choice(browser: Browser, role: str, target: str) -> None:
    browser(role)
    given = {"username": role, "password": "long-enough-1"}
    assert Client().post("/sign-in/", given).url == target
    services.install_pack("nvidia", author="test", reason="", now=timezone.now())
    assert Client().post("/sign-in/", given).url == "/"


def test_a_demo_asks_for_no_pack(settings: Any, browser: Browser) -> None:
    assert pack_previews.is_first_choice_open()
    settings.KCOVER_DEMO_URL = "http://127.0.0.1:1"
    assert not pack_previews.is_first_choice_open()
