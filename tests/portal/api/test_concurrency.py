"""Two requests in the same moment: one key acts once, one revision is edited once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from kcover_portal.policies import services as policies
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.rescue.models import Rescue
from tests.portal.api.conftest import Api, add_node, caller
from tests.portal.policies.texts import policy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("sqlite" in connection.vendor, reason="SQLite's test database is in the memory of one thread"),
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


def test_one_key_opens_one_rescue(east: Any, now: datetime) -> None:
    add_node(east, "gpu-1", now)
    secret = caller("operator", now).headers["Authorization"].removeprefix("Bearer ")

    def act(number: int) -> Any:
        return Api(secret).post("nodes/east/gpu-1/cordon", {"reason": "x"}, Idempotency_Key="k")

    answers = together(act)
    assert [answer.status_code for answer in answers] == [201] * TOGETHER
    assert {answer.json()["id"] for answer in answers} == {Rescue.objects.get().pk}


def test_one_of_many_edits_of_a_revision_is_taken(now: datetime) -> None:
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


def test_many_authors_of_the_same_new_policies_make_one_revision_each(now: datetime) -> None:
    names = ["a", "b", "c"]

    def act(number: int) -> list[int]:
        turned = names[number % 3 :] + names[: number % 3]
        text = "---\n".join(policy(name) for name in turned)
        return [row.revision for row in policies.apply(text, author="t", reason="", now=now)]

    assert together(act) == [[1, 1, 1]] * TOGETHER
    assert Revision.objects.count() == 3
