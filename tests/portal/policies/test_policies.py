"""Applying policies: revisions, all or nothing, warnings, the rules in force."""

import logging
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.decisions import match
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy, Revision
from tests.portal.policies.texts import KCE_EXAMPLE, policy

pytestmark = pytest.mark.django_db
SHIPPED = Path(__file__).parents[3] / "deploy" / "policies"


def apply(text: str, now: datetime, **more: object) -> list[Policy]:
    return services.apply(text, author="user:anna", reason="test", now=now, **more)


def problems(text: str | bytes) -> list[tuple[int, int, str, str]]:
    return [(p.line, p.column, p.path, p.message) for p in services.validate(text).problems]


def warnings(text: str) -> list[tuple[int, str, str]]:
    validated = services.validate(text)
    assert validated.problems == ()
    return [(w.line, w.path, w.message) for w in validated.warnings]


def test_kces_own_example_is_applied_unchanged(now: datetime) -> None:
    validated = services.validate(KCE_EXAMPLE)
    assert (validated.problems, validated.warnings) == ((), ())
    [row] = apply(KCE_EXAMPLE, now)
    assert (row.name, row.revision) == ("test-1", 1)
    assert row.revisions.get().text == KCE_EXAMPLE
    first, second = queries.candidates()
    assert (first.name, first.rule.codes, first.rule.labels) == ("test-1#1", ("62",), {"app": "demo", "env": "test"})
    assert (second.name, second.rule.codes, second.revision) == ("test-1#2", ("63", "64"), 1)


def test_every_mistake_is_named_with_its_line() -> None:
    text = (
        "apiVersion: kcover.io/v1\n"
        "kind: RescuePolicy\n"
        "metadata: {name: Bad_Name}\n"
        "spec:\n"
        "  rules:\n"
        "    - prioritty: 1\n"
        "      errorCode: [62]\n"
        "      actions:\n"
        "        - name: drain\n"
        "          attribute:\n"
        "            waittime: 20s\n"
        "        - name: reboot\n"
        "          attribute: {unCordon: true}\n"
    )
    found = problems(text)
    assert [(line, path) for line, _, path, _ in found] == [
        (3, "metadata.name"),
        (6, "spec.rules[0].prioritty"),
        (7, "spec.rules[0].errorCode[0]"),
        (11, "spec.rules[0].actions[0].attribute.waittime"),
        (13, "spec.rules[0].actions[1].attribute.unCordon"),
    ]
    assert "did you mean priority?" in found[1][3]
    assert 'write "62"' in found[2][3]
    assert 'write "true"' in found[4][3]


def test_a_text_without_a_policy_is_refused() -> None:
    assert problems("# only a comment\n") == [(1, 1, "", "The text contains no policy.")]


def test_a_name_may_occur_once_in_a_text() -> None:
    text = policy("twin") + "---\n" + policy("twin", codes='["63"]')
    [(line, _, path, message)] = problems(text)
    assert (path, message) == ("metadata.name", "Policy twin is defined twice, first in line 3.")
    assert text.split("\n")[line - 1] == "metadata: {name: twin}"
    assert line > 3


def test_unreadable_yaml_is_one_problem() -> None:
    [(line, _, path, message)] = problems("b: 1\na: [1\n")
    assert (line, path) == (3, "")
    assert message.startswith("Invalid YAML: while parsing a flow sequence")


def test_all_documents_are_applied_or_none(now: datetime) -> None:
    with pytest.raises(services.InvalidPolicies):
        apply(policy("good") + "---\n" + policy("bad", codes="[]"), now)
    assert (Policy.objects.count(), Revision.objects.count(), Entry.objects.count()) == (0, 0, 0)


def test_a_revision_is_made_only_for_a_changed_text(now: datetime) -> None:
    apply(policy("a") + "---\n" + policy("b", codes='["63"]'), now)
    again = "# a comment\n" + policy("a") + "---\n" + policy("b", codes='["64"]')
    rows = apply(again, now + timedelta(hours=1))
    assert [(row.name, row.revision) for row in rows] == [("a", 1), ("b", 2)]
    assert list(Revision.objects.order_by("pk").values_list("policy__name", "number")) == [("a", 1), ("b", 1), ("b", 2)]
    assert {row.created_at for row in Policy.objects.all()} == {now}
    newest = Revision.objects.get(policy__name="b", number=2)
    assert (newest.author, newest.reason, newest.at) == ("user:anna", "test", now + timedelta(hours=1))


def test_each_new_revision_is_in_the_ledger(now: datetime) -> None:
    apply(policy("a"), now)
    apply(policy("a"), now)
    entry = Entry.objects.get()
    assert (entry.cluster, entry.actor, entry.verb, entry.subject) == ("", "user:anna", "policy.applied", "policy a")
    assert (entry.data["revision"], entry.data["reason"]) == (1, "test")
    assert entry.data["document"]["metadata"] == {"name": "a"}


def test_an_edit_of_an_older_revision_is_refused(now: datetime) -> None:
    apply(policy("a"), now, expected=0)
    apply(policy("a", codes='["63"]'), now, name="a", expected=1)
    with pytest.raises(services.Conflict) as caught:
        apply(policy("a", codes='["64"]'), now, name="a", expected=1)
    assert (
        str(caught.value)
        == "You edited revision 1 of a, but revision 2 is active. Review the current version and apply again."
    )
    with pytest.raises(services.Conflict):
        apply(policy("a", codes='["64"]'), now, expected=0)
    assert Policy.objects.get().revision == 2


def test_a_refused_first_edit_leaves_no_policy_behind(now: datetime) -> None:
    with pytest.raises(services.Conflict) as caught:
        apply(policy("a"), now, expected=3)
    assert (
        str(caught.value)
        == "You edited revision 3 of a, but it is not active. Review the current version and apply again."
    )
    assert Policy.objects.count() == 0


@pytest.mark.parametrize("text", [policy("b"), policy("a") + "---\n" + policy("b")])
def test_a_text_for_one_policy_must_hold_only_that(text: str, now: datetime) -> None:
    with pytest.raises(services.InvalidPolicies) as caught:
        apply(text, now, name="a")
    assert "The text must contain only the policy a" in str(caught.value)
    assert Policy.objects.count() == 0


def test_rolling_back_makes_a_new_revision(now: datetime) -> None:
    apply(policy("a"), now)
    apply(policy("a", codes='["63"]'), now)
    row = services.rollback("a", 1, author="user:bo", reason="too wide", now=now)
    assert row.revision == 3
    newest = row.revisions.get(number=3)
    assert newest.text == policy("a")
    assert (newest.reason, newest.why) == ("too wide", reasons.of("policy_rolled_back", revision=1))
    assert queries.candidates()[0].rule.codes == ("62",)
    with pytest.raises(services.NotFound):
        services.rollback("a", 9, author="user:bo", reason="why", now=now)
    with pytest.raises(services.Conflict, match="You edited revision 2 of a, but revision 3 is active"):
        services.rollback("a", 2, author="user:bo", reason="why", now=now, expected=2)
    with pytest.raises(services.Conflict, match="Revision 3 of a is already active"):
        services.rollback("a", 3, author="user:bo", reason="why", now=now)


@pytest.mark.parametrize("reason", ["", "  "])
def test_rolling_back_needs_a_reason(reason: str, now: datetime) -> None:
    apply(policy("a"), now)
    apply(policy("a", codes='["63"]'), now)
    with pytest.raises(services.InvalidPolicies, match="reason: Required to roll back to an earlier revision"):
        services.rollback("a", 1, author="user:bo", reason=reason, now=now)
    assert Policy.objects.get().revision == 2


def test_rolling_back_brings_back_the_text_where_only_comments_changed(now: datetime) -> None:
    apply(policy("a"), now)
    apply(policy("a", codes='["63"]'), now)
    apply("# mine\n" + policy("a"), now)
    row = services.rollback("a", 1, author="user:bo", reason="why", now=now)
    assert (row.revision, queries.revision(row).text) == (4, policy("a"))


def test_a_deleted_policy_is_out_of_force_and_its_numbers_go_on(now: datetime) -> None:
    apply(policy("a"), now)
    with pytest.raises(services.Conflict):
        services.delete("a", author="user:bo", reason="", now=now, expected=2)
    services.delete("a", author="user:bo", reason="gone", now=now, expected=1)
    assert queries.candidates() == ()
    assert list(queries.policies()) == []
    assert services.export() == ""
    entry = Entry.objects.latest("pk")
    assert (entry.verb, entry.data) == (
        "policy.deleted",
        {"policy": "a", "standby": False, "revision": 1, "reason": "gone"},
    )
    with pytest.raises(services.NotFound):
        services.delete("a", author="user:bo", reason="", now=now)
    [row] = apply(policy("a"), now, expected=0)
    assert (row.revision, row.created_at) == (2, now)


def test_an_export_can_be_applied_again(now: datetime) -> None:
    apply(KCE_EXAMPLE + "---\n# mine\n" + policy("b", codes='["48"]'), now)
    text = services.export()
    assert "# 有效值any / all" in text
    assert "# mine" in text
    before = queries.candidates()
    assert [row.revision for row in apply(text, now)] == [1, 1]
    services.delete("b", author="x", reason="", now=now)
    services.delete("test-1", author="x", reason="", now=now)
    apply(text, now)
    assert [one.rule for one in queries.candidates()] == [one.rule for one in before]
    assert services.export() == text


# --- which rule would win


def test_the_effective_rule(now: datetime) -> None:
    apply(policy("a") + "---\n" + policy("b", codes="~", priority=1), now)
    for code, name in (("62", "a#1"), ("48", "b#1"), ("31", None)):
        chosen, tried = queries.effective(kind="xid", code=code, labels={})
        assert (chosen.name if chosen else None) == name
        assert len(tried) == (1 if name == "a#1" else 2)


# --- warnings


def test_a_rule_that_lists_a_programs_code_warns() -> None:
    [(line, path, message)] = warnings(policy(codes='["62", "31"]'))
    assert (line, path) == (7, "spec.rules[0].errorCode[1]")
    assert message == "Xid 31 is caused by a program and is not a fault of the node, but this rule acts on nodes for it"


@pytest.mark.parametrize("code", ["13", "31", "43", "45"])
def test_every_known_program_code_warns(code: str) -> None:
    assert len(warnings(policy(codes=f'["{code}"]'))) == 1


def test_a_code_that_no_catalog_knows_warns() -> None:
    assert [message for *_, message in warnings(policy(codes='["9999"]'))] == ["Xid 9999 is not in the catalog"]


TIE = (
    "a#1 and b#1 both have priority 10 and can match {} on one node: "
    "the rule of the older policy runs; within one policy, the first rule runs"
)
NEVER = "; b#1 never runs"


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (policy("a"), policy("b", codes='["63", "62"]'), "Xid 62"),
        (policy("a", codes="~"), policy("b", codes="~"), "any fault" + NEVER),
        (policy("a", codes="~"), policy("b", codes='["31", "62"]'), "Xid 62"),
        (policy("a"), policy("b", codes="~"), "Xid 62"),
        (policy("a", codes='["62", "48"]'), policy("b"), "Xid 62" + NEVER),
    ],
)
def test_two_rules_of_one_priority_that_can_meet_warn(first: str, second: str, shared: str) -> None:
    said = [(path, message) for _, path, message in warnings(first + "---\n" + second) if "priority" in message]
    fault, never, _ = shared.partition(NEVER)
    assert said == [("spec.rules[0]", TIE.format(fault) + never)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (policy("a"), policy("b", codes='["63"]')),
        (policy("a"), policy("b", priority=11)),
        (policy("a", codes='["31"]'), policy("b", codes="~")),
    ],
)
def test_rules_that_cannot_meet_do_not_warn(first: str, second: str) -> None:
    assert [message for *_, message in warnings(first + "---\n" + second) if "priority" in message] == []


def selector(operator: str, labels: str) -> str:
    return f"      nodeSelector: {{operator: {operator}, labels: {{{labels}}}}}\n"


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        (selector("all", "a: x"), selector("all", "a: y"), False),
        (selector("all", "a: x"), selector("all", "b: y"), True),
        (selector("all", "a: x, b: y"), selector("any", "a: z, b: y"), True),
        (selector("all", "a: x, b: y"), selector("any", "a: z, b: z"), False),
        (selector("any", "a: x, b: y"), selector("any", "a: z, b: z"), True),
        (selector("any", "a: x"), selector("any", "a: z"), False),
        (selector("all", ""), selector("any", "a: z"), True),
        ("", selector("all", "a: z"), True),
    ],
)
def test_rules_meet_only_on_nodes_that_both_select(first: str, second: str, meet: bool) -> None:
    text = policy("a", extra=first) + "---\n" + policy("b", extra=second)
    assert bool(warnings(text)) is meet


def test_a_rule_in_force_counts_unless_the_text_replaces_it(now: datetime) -> None:
    apply(policy("a"), now)
    assert [message for *_, message in warnings(policy("b"))] == [TIE.format("Xid 62") + NEVER]
    assert warnings(policy("a")) == []
    services.delete("a", author="x", reason="", now=now)
    assert warnings(policy("b")) == []


def test_a_rule_that_another_leaves_nothing_warns() -> None:
    first, second = policy("a", priority=11, codes='["62", "48"]'), policy("b")
    never = "b#1 never runs: a#1 comes before it and matches the same faults"
    assert [(path, message) for _, path, message in warnings(first + "---\n" + second)] == [("spec.rules[0]", never)]
    shadow = policy("a", priority=11, codes="~", extra="      mode: shadow\n")
    assert [message for *_, message in warnings(shadow + "---\n" + second)] == [
        f"{never}; a#1 is in shadow mode and does nothing"
    ]


def test_the_rule_that_is_left_nothing_may_be_in_force_already(now: datetime) -> None:
    apply(policy("b"), now)
    [(line, path, message)] = warnings(policy("a", priority=11))
    assert (line, path) == (6, "spec.rules[0]")
    assert message == "b#1 never runs: a#1 comes before it and matches the same faults"


def test_a_shadow_that_falls_on_a_rule_that_acts_warns(now: datetime) -> None:
    apply(policy("b", codes='["62", "48"]'), now)
    shadow = policy("a", priority=11, extra="      mode: shadow\n")
    assert [message for *_, message in warnings(shadow)] == [
        "b#1 does not act on Xid 62: a#1 comes before it; a#1 is in shadow mode and does nothing"
    ]
    assert warnings(policy("a", priority=11)) == []
    assert warnings(policy("a", codes='["62", "64"]', priority=9, extra="      mode: shadow\n")) == []


def test_a_harmless_sxid_warns() -> None:
    text = policy("a", extra='      match: {sxid: ["12021", "11004", "1"]}\n')
    assert [(path, message) for _, path, message in warnings(text)] == [
        (
            "spec.rules[0].match.sxid[0]",
            "SXid 12021 is corrected by the switch itself and is not a fault of the node,"
            " but this rule acts on nodes for it",
        ),
        ("spec.rules[0].match.sxid[2]", "SXid 1 is not in the catalog"),
    ]


def test_the_age_of_a_policy_that_is_edited_counts(now: datetime) -> None:
    apply(policy("z"), now)
    apply(policy("a", codes='["48"]'), now + timedelta(days=1))
    [(_, _, message)] = warnings(policy("z", codes='["62", "48"]'))
    assert message.startswith("z#1 and a#1 both have priority 10")


def test_ties_among_the_rules_in_force_are_not_warned_about_again(now: datetime) -> None:
    apply(policy("a") + "---\n" + policy("b"), now)
    assert warnings(policy("c", codes='["48"]')) == []


# --- the rules in force


def test_candidates_cost_one_query_while_nothing_changes(now: datetime) -> None:
    apply(policy("a") + "---\n" + policy("b", codes='["63"]'), now)
    read = queries.candidates()
    assert [(one.policy, one.revision, one.created_at) for one in read] == [("a", 1, now), ("b", 1, now)]
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert queries.candidates() is read
    assert len(asked) == 1
    apply(policy("a", codes='["64"]'), now)
    assert [one.rule.codes for one in queries.candidates()] == [("64",), ("63",)]


def test_candidates_are_not_those_of_an_equal_looking_past(now: datetime) -> None:
    apply(policy("a"), now)
    assert queries.candidates()[0].rule.codes == ("62",)
    revision = Revision.objects.get()
    Revision.objects.filter(pk=revision.pk).update(
        text=revision.text.replace("62", "63"),
        document={**revision.document, "spec": {"rules": [{"errorCode": ["63"]}]}},
    )
    assert queries.candidates()[0].rule.codes == ("63",)


def test_a_revision_of_a_newer_version_is_left_out_and_logged(now: datetime, caplog: pytest.LogCaptureFixture) -> None:
    apply(policy("a") + "---\n" + policy("b"), now)
    row = Revision.objects.get(policy__name="a")
    Revision.objects.filter(pk=row.pk).update(text="# new", document={**row.document, "kind": "FuturePolicy"})
    with caplog.at_level(logging.ERROR):
        assert [one.policy for one in queries.candidates()] == ["b"]
    assert "policy a revision 1 cannot be read" in caplog.text


# --- what is shipped


def test_kces_table_is_carried_out_as_the_help_page_has_it(now: datetime) -> None:
    services.apply((SHIPPED / "kce.yaml").read_bytes(), author="x", reason="", now=now)
    for code, actions in {"48": 3, "62": 3, "64": 3, "79": 1}.items():
        chosen, _ = match.match(queries.candidates(), kind="xid", code=code, cause=None, labels={})
        assert chosen is not None
        assert [action.name for action in chosen.rule.actions] == ["cordon", "drain", "reboot"][:actions]
        assert chosen.rule.uncordons is (code != "79")
        assert bool(chosen.rule.escalate) is (code == "79")
        assert chosen.rule.mode == "enforce"
