"""Pair tests find slow nodes, and only those."""

from datetime import timedelta

import pytest

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight import queries
from tests.portal.jobs.sim_world import SimWorld
from tests.portal.preflight.pair_world import begin, clean, finish, names, slow, work

pytestmark = pytest.mark.django_db


def test_a_sound_fleet_passes_and_leaves_nothing_behind(sim: SimWorld) -> None:
    plan = finish(sim, begin(sim))
    assert (plan.state, plan.slow, plan.fabric, plan.inconclusive) == ("finished", [], [], [])
    tests = list(plan.tests.all())
    assert {test.state for test in tests} == {"passed"}
    assert {test.round for test in tests} == {1, 2, 3, 4, 5}
    assert all(test.device and test.best == 480 and len(test.busbw) == 3 for test in tests)
    clean(sim)
    plan.refresh_from_db()
    assert plan.cleaned
    assert list(queries.plans_at_work(now=sim.now + timedelta(days=1))) == []
    verbs = list(Entry.objects.filter(verb__startswith="pair").order_by("id").values_list("verb", flat=True))
    assert verbs[0] == "pair_plan.requested"
    assert "pair_plan.finished" in verbs
    assert verbs.count("pair_test.begun") == verbs.count("pair_test.done") == len(tests) == 20
    assert verbs.count("pair_test_cleanup.begun") == verbs.count("pair_test_cleanup.done") == 5


def test_a_slow_node_becomes_an_incident_and_a_later_clean_plan_closes_it(sim: SimWorld) -> None:
    bad = names(sim)[2]
    slow(sim, bad)
    plan = finish(sim, begin(sim))
    assert (plan.slow, plan.inconclusive) == ([bad], [])
    assert not plan.tests.exclude(confirms="").exists()
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.node and incident.node.name) == ("preflight", "slow", bad)
    slow(sim, bad, speed=1.0)
    sim.pass_time(5)
    finish(sim, begin(sim))
    incident.refresh_from_db()
    assert (incident.state, incident.closed_because["code"]) == ("closed", "pair_cleared")


def test_a_node_that_fails_sometimes_is_confirmed(sim: SimWorld) -> None:
    bad = names(sim)[5]
    plan = begin(sim)
    for _number in range(300):
        first = plan.tests.filter(state__in=("pending", "running")).order_by("round").first()
        slow(sim, bad, 0.5 if first is not None and first.round in (1, 3, 6) else 1.0)
        work(sim, plan)
        if plan.state != "running":
            break
        sim.pass_time(2)
    confirmations = plan.tests.filter(confirms=bad)
    assert {test.round for test in confirmations} == {6}
    assert confirmations.count() == 3
    assert plan.slow == [bad]


def test_kcovers_rule_names_only_nodes_that_failed_every_test(sim: SimWorld) -> None:
    bad = names(sim)[1]
    slow(sim, bad)
    plan = finish(sim, begin(sim, rule="kcover", rounds=3))
    assert plan.slow == [bad]


def test_two_nodes_are_a_suspect_pair_that_others_confirm(sim: SimWorld) -> None:
    first, second, *others = names(sim)
    slow(sim, first)
    plan = begin(sim, first, second)
    assert plan.tests.count() == 1
    finish(sim, plan)
    confirmations = plan.tests.exclude(confirms="").select_related("first", "second")
    assert {(test.confirms, test.round) for test in confirmations} == {(first, 6), (second, 6)}
    assert {test.second.name for test in confirmations} <= set(others)
    assert (plan.slow, plan.inconclusive) == ([first], [])
    assert [incident.node and incident.node.name for incident in Incident.objects.all()] == [first]


def test_two_nodes_without_a_third_are_inconclusive(sim: SimWorld) -> None:
    first, second, *others = names(sim)
    Node.objects.filter(name__in=others).update(labels={"kcover.io/exclude": "true"})
    slow(sim, first)
    plan = finish(sim, begin(sim, first, second))
    assert (plan.slow, plan.inconclusive) == ([], [first, second])
    assert Incident.objects.count() == 0


def test_many_suspects_are_a_storm_and_open_no_incident(sim: SimWorld) -> None:
    bad = names(sim)[:3]
    for name in bad:
        slow(sim, name)
    plan = finish(sim, begin(sim))
    assert (plan.storm, plan.slow, set(bad) <= set(plan.inconclusive)) == (True, [], True)
    assert Incident.objects.count() == 0
    [entry] = Entry.objects.filter(verb="pair_plan.finished")
    assert entry.data["storm"] is True
