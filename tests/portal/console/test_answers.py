"""What a decision answers on its page, and the groups of the rules that it compared with the fault."""

from datetime import datetime

import pytest

from kcover import reasons
from kcover.decisions import match
from kcover.policy import document
from kcover_portal.console.reads import answers
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision
from tests.portal.console.conftest import Person

pytestmark = pytest.mark.django_db
OTHER = reasons.of("lists_others", listed="48", code="74")
ELSEWHERE = reasons.of("not_all_labels", labels="pool=a")
MATCHES = reasons.of("rule_matches", rule="b#1", priority=10, kind="xid", code="74")


@pytest.fixture
def decision(now: datetime) -> Decision:
    cluster = Cluster.objects.create(name="east", created_at=now)
    node = cluster.nodes.create(name="n1", created_at=now)
    about = {"cluster": cluster, "node": node, "kind": "xid", "code": "74"}
    incident = Incident.objects.create(**about, opened_at=now, last_at=now)
    return Decision(cluster=cluster, node=node, incident=incident, answer="none", at=now, last_at=now)


def mismatch(rule: str, why: reasons.Reason) -> dict[str, object]:
    return reasons.of("rule_mismatch", rule=rule, why=why).to_json()


def test_a_fault_that_no_rule_covers_has_one_answer(decision: Decision) -> None:
    decision.because = [mismatch("a#1", OTHER), mismatch("a#2", ELSEWHERE)]
    assert [reason.code for reason in answers.of(decision)] == ["need_uncovered"]


def test_without_any_rule_it_says_so(decision: Decision) -> None:
    decision.because = [reasons.of("no_policy").to_json()]
    assert [reason.code for reason in answers.of(decision)] == ["no_policy"]


def test_what_holds_it_back_is_the_answer(decision: Decision) -> None:
    holds = reasons.of("rescue_open", rescue="3")
    decision.because = [MATCHES.to_json(), holds.to_json()]
    assert answers.of(decision) == (holds,)
    decision.because = [MATCHES.to_json()]
    assert answers.of(decision) == (MATCHES,), "it is all that there is"


def test_rules_are_grouped_nearest_first() -> None:
    rules = [
        match.TriedRule("a#1", False, OTHER),
        match.TriedRule("a#2", False, ELSEWHERE),
        match.TriedRule("b#1", True, reasons.of("code_and_labels_match")),
    ]
    found = [(group.title, [rule.rule for rule in group.rules]) for group in answers.grouped(rules)]
    assert found == [(answers.APPLIES, ["b#1"]), (answers.NEAREST, ["a#2"]), (answers.OTHERS, ["a#1"])]


def test_each_way_to_cover_other_faults_is_known() -> None:
    """A new reason of ``match`` for another fault must not make a rule look near."""
    only, anything = document.Rule(index=0, priority=0, codes=("79",)), document.Rule(index=0, priority=0)
    named = document.Rule(index=0, priority=0, codes=("79",), checks=("dcgm",))
    alerts = document.Rule(index=0, priority=0, kinds=("alert",), application_faults=False)
    found = {}
    for rule, kind, code, told in (
        *((only, "xid", "74", {}), (only, "alert", "74", {}), (named, "xid", "74", {}), (anything, "alert", "74", {})),
        *((anything, "xid", "43", {}), (alerts, "alert", "a", {"harmless": True})),
        (alerts, "alert", "a", {"application": True}),
    ):
        because = match.fault_refusal(rule, kind=kind, code=code, **{"application": False, **told})
        assert because is not None
        found[because.code] = answers.grouped([match.TriedRule("a#1", False, because)])[0].title
    assert {code for code, title in found.items() if title == answers.OTHERS} == match.FOR_OTHER_FAULTS
    assert {code for code, title in found.items() if title == answers.LEFT_OUT} == match.LEFT_OUT - {
        "object_adds_node_faults_only"
    }


def test_the_pages_show_the_answer_and_fold_the_rules(decision: Decision, person: Person) -> None:
    decision.because = [mismatch("a#1", OTHER)]
    decision.tried = [{"rule": "a#1", "matched": False, "because": OTHER.to_json()}]
    decision.save()
    for path in ("/decisions/", "/nodes/east/n1/", f"/incidents/{decision.incident_id}/"):
        page = person("viewer").get(path).content.decode()
        shown, _, folded = page.partition(f'id="tried-{decision.pk}"')
        assert str(OTHER) not in shown, path
        assert str(OTHER) in folded, path
