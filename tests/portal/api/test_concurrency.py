"""Two requests in the same moment: one key acts once, one revision is edited once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from kcover.repairs.repairs import Part
from kcover_portal.audit_stream import services as sinks
from kcover_portal.audit_stream.models import Sink
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import services as policies
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import VendorDelivery
from kcover_portal.rescue.models import Rescue
from tests.portal.api.conftest import Api, add_node, caller
from tests.portal.policies.texts import policy
from tests.portal.repairs.test_vendor_events import SECRET, Vendor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread"),
]
TOGETHER = 4


def together(act: Callable[[int], Any]) -> list[Any]:
    """What each of several threads, let go at once, returned."""
    start = Barrier(TOGETHER)

    def run(number: int) -> Any:
        start.wait(60)
        try:
            return act(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(run, range(TOGETHER)))


def test_concurrent_requests_with_one_key_open_one_rescue(east: Any, now: datetime) -> None:
    add_node(east, "gpu-1", now)
    secret = caller("operator", now).headers["Authorization"].removeprefix("Bearer ")

    def act(number: int) -> Any:
        return Api(secret).post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k")

    answers = together(act)
    assert [answer.status_code for answer in answers] == [201] * TOGETHER
    assert {answer.json()["id"] for answer in answers} == {Rescue.objects.get().pk}


def test_concurrent_deliveries_of_one_vendor_event_act_once(east: Any, now: datetime) -> None:
    given = {"address": "https://acme.example", "secret": SECRET, "options": {"vendor": "ACME"}}
    sinks.SINKS.make(Sink(name="acme", kind="webhook"), given, actor="t", now=now)
    node = add_node(east, "gpu-1", now)
    repair = repairs.report(node, part=Part(), details={"vendor": "ACME"}, actor="t", reason="x", now=now)
    same = b'{"delivery": "a", "event": "accept", "repair": %d}' % repair.pk
    answers = together(lambda number: Vendor().post(same))
    assert {(one.status_code, one.content) for one in answers} == {(200, answers[0].content)}
    assert Entry.objects.filter(verb="repair.accepted").count() == 1
    other = b'{"delivery": "b%d", "event": "comment", "comment": "x", "repair": %d}'
    assert {one.status_code for one in together(lambda number: Vendor().post(other % (number, repair.pk)))} == {200}
    assert Entry.objects.filter(verb="repair.commented").count() == TOGETHER
    assert VendorDelivery.objects.count() == 1 + TOGETHER


def test_one_of_many_concurrent_edits_is_accepted(now: datetime) -> None:
    policies.apply(policy("a", codes='["48"]'), author="t", reason="", now=now)

    def act(number: int) -> str:
        try:
            text = policy("a", codes=f'["{number + 1}"]')
            policies.apply(text, author=f"user:{number}", reason="", now=now, name="a", expected=1)
        except policies.Conflict:
            return "late"
        return "taken"

    assert sorted(together(act)) == ["late"] * (TOGETHER - 1) + ["taken"]
    assert Policy.objects.get().revision == 2
    assert Revision.objects.count() == 2


def test_concurrent_authors_of_the_same_new_policies_make_one_revision_each(now: datetime) -> None:
    names = ["a", "b", "c"]

    def act(number: int) -> list[int]:
        turned = names[number % 3 :] + names[: number % 3]
        text = "---\n".join(policy(name) for name in turned)
        return [row.revision for row in policies.apply(text, author="t", reason="", now=now)]

    assert together(act) == [[1, 1, 1]] * TOGETHER
    assert Revision.objects.count() == 3
