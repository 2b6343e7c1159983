"""Policies are tried on the console: the form, the progress, the result, and what is refused."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.fleet.models import Cluster
from kcover_portal.policies import services as policies
from kcover_portal.policies.models import PolicyTry
from kcover_portal.rescue.decide import policy_tries
from tests.portal.api.conftest import add_node
from tests.portal.api.test_policies_dry_run import add_incident
from tests.portal.policies.texts import policy

NEW = "/policy-tries/new/"


@pytest.fixture
def incident(db: None, now: Any) -> Any:
    cluster = Cluster.objects.create(name="east", created_at=now)
    return add_incident(add_node(cluster, "gpu-1", now), now)


@pytest.fixture
def vera(person: Any, incident: Any) -> Client:
    return person("viewer")


def tried(client: Client, **scope: Any) -> PolicyTry:
    assert client.post(NEW, {"text": policy("a"), **scope}).status_code == 302
    return PolicyTry.objects.get()


@pytest.mark.parametrize("scope", [{"scope": "now"}, {"scope": "node", "node": "east/gpu-1"}])
def test_a_try_shows_its_progress_and_its_result(vera: Client, incident: Any, scope: dict[str, str]) -> None:
    row = tried(vera, **scope)
    page = vera.get(f"/policy-tries/{row.pk}/")
    assert page.context["open"]
    assert f"/policy-tries/{row.pk}/cancel/" in page.content.decode()
    policy_tries.advance(row.pk, clock=timezone.now)
    shown = vera.get(f"/policy-tries/{row.pk}/", headers={"HX-Request": "true"}).context
    assert (shown["open"], shown["rules"], shown["nodes"]) == (False, [("a#1", 1)], [("east", "gpu-1")])
    assert [one["incident"] for one in shown["changed"]] == [incident.pk]


def test_a_try_of_days_asks_for_them(vera: Client) -> None:
    refused = vera.post(NEW, {"text": policy("a"), "scope": "days"})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["days"])
    assert tried(vera, scope="days", days=7).past


def test_the_editor_gets_the_result_without_the_page(vera: Client) -> None:
    sent = {"text": policy("a"), "scope": "now", "reason": ""}
    fragment = vera.post(NEW, sent, headers={"HX-Request": "true"})
    assert fragment.status_code == 200
    assert "<html" not in fragment.content.decode()


def test_a_second_try_waits_and_the_first_can_be_cancelled(vera: Client) -> None:
    row = tried(vera, scope="now")
    refused = vera.post(NEW, {"text": policy("a"), "scope": "now"})
    assert (refused.status_code, refused.context["tried"]) == (429, row)
    assert refused.headers["Retry-After"]
    vera.post(f"/policy-tries/{row.pk}/cancel/")
    row.refresh_from_db()
    assert row.state == "cancelled"


@pytest.mark.parametrize(
    "sent", [{"text": "x: [", "scope": "now"}, {"text": policy("a"), "scope": "node", "node": "a/b"}]
)
def test_a_bad_text_and_an_unknown_node_are_refused(vera: Client, sent: dict[str, str]) -> None:
    assert vera.post(NEW, sent).status_code == 422
    assert not PolicyTry.objects.exists()


def test_the_try_of_another_person_is_not_found(vera: Client, person: Any) -> None:
    row = tried(vera, scope="now")
    other = person("admin")
    assert other.get(f"/policy-tries/{row.pk}/").status_code == 404
    assert other.post(f"/policy-tries/{row.pk}/cancel/").status_code == 404


def test_the_editor_and_the_list_offer_a_try(person: Any, incident: Any) -> None:
    assert NEW in person("viewer").get("/policies/").content.decode()
    assert NEW in person("admin").get("/policies/edit/").content.decode()


EFFECT = "/policy-tries/effect/"


def counted(client: Client, text: str, before: PolicyTry | None = None) -> Any:
    sent = {"text": text, "counted": str(before.pk) if before else ""}
    return client.post(EFFECT, sent, headers={"HX-Request": "true"}).context


def test_the_editor_counts_the_decisions_that_a_text_would_change(vera: Client, incident: Any) -> None:
    shown = counted(vera, policy("a"))
    row = PolicyTry.objects.get()
    assert (shown["open"], row.past, row.total) == (True, True, 1)
    policy_tries.advance(row.pk, clock=timezone.now)
    assert vera.get(EFFECT).status_code == 405
    shown = vera.get(f"{EFFECT}{row.pk}/").context
    assert (shown["open"], shown["changed"]) == (False, 1)
    assert counted(vera, policy("a"), row)["tried"] == row, "the same text is counted once"
    assert PolicyTry.objects.count() == 1


def test_another_text_ends_the_count_before_it(vera: Client) -> None:
    counted(vera, policy("a"))
    before = PolicyTry.objects.get()
    shown = counted(vera, policy("b"), before)
    before.refresh_from_db()
    assert (before.state, shown["tried"].text) == ("cancelled", policy("b"))


def test_a_try_that_somebody_began_goes_on(vera: Client) -> None:
    row = tried(vera, scope="now")
    assert counted(vera, policy("b"))["refusal"].code == "try_own_open"
    row.refresh_from_db()
    assert row.state == "waiting"


@pytest.mark.parametrize("text", ["x: [", ""])
def test_an_invalid_text_is_not_counted_and_ends_the_count_before_it(vera: Client, text: str) -> None:
    counted(vera, policy("a"))
    before = PolicyTry.objects.get()
    assert counted(vera, text, before)["tried"] is None
    before.refresh_from_db()
    assert before.state == "cancelled"
    assert counted(vera, policy("b"))["tried"] is not None, "nothing of it is in the way"


def test_a_try_that_somebody_asks_for_ends_the_count(vera: Client) -> None:
    counted(vera, policy("a"))
    row = PolicyTry.objects.get()
    assert vera.post(NEW, {"text": policy("a"), "scope": "now", "counted": str(row.pk)}).status_code == 302
    row.refresh_from_db()
    assert (row.state, PolicyTry.objects.count()) == ("cancelled", 2)


def test_a_text_is_counted_again_after_a_policy_was_published(vera: Client) -> None:
    counted(vera, policy("a"))
    row = PolicyTry.objects.get()
    policies.apply(policy("c"), author="user:ada", reason="x", now=timezone.now())
    assert counted(vera, policy("a"), row)["tried"].pk != row.pk


def test_the_count_of_another_person_is_not_told(vera: Client, person: Any) -> None:
    counted(vera, policy("a"))
    row = PolicyTry.objects.get()
    other = person("admin")
    assert other.get(f"{EFFECT}{row.pk}/").status_code == 404
    assert counted(other, policy("a"), row)["tried"].pk != row.pk
