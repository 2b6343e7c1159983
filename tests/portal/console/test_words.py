"""Words in place of codes: actors, hashes, calls, settings of actions, and what a rescue by hand is about."""

import pytest
from django.utils import translation

from kcover import audit
from kcover_portal.console import browsers
from kcover_portal.console.reads import entries, rescues
from kcover_portal.console.templatetags import console as tags
from kcover_portal.fleet import services as fleet
from kcover_portal.ledger import services as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import actor_names
from kcover_portal.rescue import services
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("actor", "name"),
    [
        ("user:ann", "ann"),
        ("policy:kce#1", "规则 kce#1"),
        ("agent:gpu-1", "gpu-1 的 Agent"),
        ("rescue 5", "自愈任务 5"),
        ("system", "门户"),
        ("demo", "demo"),
    ],
)
def test_an_actor_has_a_name_in_the_readers_language(actor: str, name: str) -> None:
    with translation.override("zh-hans"):
        assert actor_names.name(actor) == name


def test_settings_of_actions_are_words_where_there_are_some() -> None:
    assert ">at most 20 min<" in tags.action_setting("drain", "waittime", "20min")
    assert ">then back to service<" in tags.action_setting("reboot", "unCordon", "true")
    assert 'mono">key=bad<' in tags.action_setting("taint", "key", "bad")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Firefox 128 · Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 "
            "Safari/537.36 Edg/131.0.2903.51",
            "Edge 131 · Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
            "Version/18.1 Mobile/15E148 Safari/604.1",
            "Safari 18 · iOS",
        ),
        ("something else", "something else"),
    ],
)
def test_a_session_names_its_browser_and_system(header: str, name: str) -> None:
    assert browsers.name(header) == name


def test_a_built_in_role_tells_how_many_have_it(person, world: World) -> None:
    person("viewer", name="vera")
    built_in = person("admin").get("/access/").context["built_in"]
    assert {role: people for role, _verbs, people, _groups in built_in if people} == {"Admin": 1, "Viewer": 1}


def test_a_rescue_by_hand_is_listed_with_its_verb(person, world: World) -> None:
    for verb in ("cordon", "release"):
        services.request(world.node(), verb, actor="user:ann", reason="r", now=world.now)
        world.work()
        world.pass_time(60)
    rows = person("viewer").get("/rescues/").context["rows"]
    assert [row["cause"] for row in rows] == ["Release", "Cordon"]
    assert rescues.asked_for([]) == ""


def test_an_answer_is_told_once_and_in_its_place(person, make) -> None:
    world = make()
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    world.fault(62)
    world.work()
    services.approve(world.rescue(), actor="user:bob", reason="seen", now=world.now, via="link", link_maker="ann")
    page = person("viewer").get(f"/rescues/{world.rescue().pk}/")
    told = [entry.verb for entry in page.context["entries"]]
    assert told.count("rescue.approved") == 1
    assert told == [entry.verb for entry in sorted(page.context["entries"], key=lambda entry: entry.pk)]
    [vote] = [entry for entry in page.context["entries"] if entry.verb == "rescue.approved"]
    assert entries.is_by_link(vote)


def test_a_hash_in_an_entry_is_shown_short(world: World) -> None:
    digest = "5ac493bd149f75844c2226065bfbc1c1163ecfac41b918eb409badbec5952f80"
    kept = audit.EvidenceKept(rescue=1, node="gpu-1", number=1, sha256=digest, size=867)
    ledger.record("c1", kept, actor="agent:gpu-1", now=world.now)
    entry = Entry.objects.get(verb="evidence.kept")
    assert digest[:12] in entries.why(entry)
    assert digest not in entries.why(entry)


def test_a_chip_of_a_preset_time_says_it_as_its_button(person, world: World) -> None:
    page = person("viewer").get("/incidents/?since=30day").content.decode()
    assert "<b>30 d</b>" in page
