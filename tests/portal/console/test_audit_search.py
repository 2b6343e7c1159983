"""The audit log finds its entries by the words that a reader sees, and its entries lead to the rescue that acted."""

import re

import pytest

from kcover_portal.ledger.queries import titles
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "cordon"), ("en", "CORDON"), ("zh-hans", "封锁"), ("zh-hans", "cordon")],
)
def test_the_words_of_an_action_find_its_entries(world: World, person: Person, language: str, words: str) -> None:
    world.fault(62)
    world.work()
    page = person("viewer").get("/audit/", {"q": words}, headers={"Accept-Language": language})
    verbs = {entry.verb for entry in page.context["log"].rows}
    assert "cordon.done" in verbs
    assert "incident.opened" not in verbs


def test_words_that_no_title_has_find_no_verb() -> None:
    assert titles.verbs_titled("no such words") == set()


def test_an_entry_of_a_call_names_the_rescue_that_made_it_and_leads_there(world: World, person: Person) -> None:
    world.fault(62)
    world.work()
    number = world.rescue().pk
    page = person("viewer").get("/audit/?verb=cordon.done").content.decode()
    link = re.search(rf'href="/rescues/{number}/">\s*([^<]*?)\s*</a>', page)
    assert (link and link[1], f"node {NODE}" in page) == (f"Rescue {number}", True)
    page = person("viewer").get("/audit/?verb=rescue.opened").content.decode()
    assert len(re.findall(rf'href="/rescues/{number}/"', page)) == 1
