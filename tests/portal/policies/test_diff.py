"""What changed between two texts."""

from datetime import datetime
from typing import Any

import pytest
import yaml

from kcover_portal.policies import services
from tests.portal.policies.texts import policy


def compare(old: str, new: str) -> services.Difference:
    return services.compare((old, yaml.safe_load(old)), (new, yaml.safe_load(new)))


def changes(old: str, new: str) -> list[tuple[str, Any, Any]]:
    return [(one.path, one.old, one.new) for one in compare(old, new).changes]


def rules(*lines: str) -> str:
    head = "apiVersion: kcover.io/v1\nkind: RescuePolicy\nmetadata: {name: a}\nspec:\n  rules:\n"
    return head + "".join(f"    - {line}\n" for line in lines)


FIRST, SECOND, THIRD = (f'{{priority: {n}, errorCode: ["{n}"], actions: [{{name: cordon}}]}}' for n in (48, 62, 79))


def test_equal_texts_have_no_differences() -> None:
    assert compare(policy("a"), policy("a")) == services.Difference((), ())


def test_a_comment_is_a_change_of_lines_only() -> None:
    found = compare(policy("a"), "# why\n" + policy("a"))
    assert (found.lines[:2], found.lines[3], found.changes) == (("--- old", "+++ new"), "+# why", ())


def test_an_equivalent_text_is_no_change() -> None:
    new = policy("a").replace("[{name: cordon}]", "~") + "      mode: enforce\n      verify: false\n"
    assert changes(policy("a"), new) == []


def test_changed_values_are_listed_with_their_place() -> None:
    new = policy("a", priority=11, codes='["62", "48"]', extra="      budget: 10%\n")
    assert changes(policy("a"), new) == [
        ("spec.rules[0].priority", 10, 11),
        ("spec.rules[0].errorCode", ["62"], ["62", "48"]),
        ("spec.rules[0].budget", None, "10%"),
    ]


def test_a_rule_that_was_put_in_front_moves_the_others_and_changes_none() -> None:
    [(path, old, new)] = changes(rules(SECOND, THIRD), rules(FIRST, SECOND, THIRD))
    assert (path, old, new["errorCode"]) == ("spec.rules[0]", None, ["48"])


def test_a_removed_rule_is_listed_by_its_old_place() -> None:
    [(path, old, new)] = changes(rules(FIRST, SECOND, THIRD), rules(FIRST, THIRD))
    assert (path, old["errorCode"], new) == ("spec.rules[1]", ["62"], None)


def test_a_rule_that_was_changed_is_compared_in_its_place() -> None:
    changed = SECOND.replace("62,", "63,")
    assert changes(rules(FIRST, SECOND, THIRD), rules(FIRST, changed, THIRD)) == [("spec.rules[1].priority", 62, 63)]


def test_a_text_that_this_version_cannot_read_is_compared_as_written() -> None:
    old = policy("a").replace("RescuePolicy", "FuturePolicy")
    assert changes(old, policy("a"))[0] == ("kind", "FuturePolicy", "RescuePolicy")


@pytest.mark.django_db
def test_revisions_are_found_by_number(now: datetime) -> None:
    for codes in ('["62"]', '["63"]', '["64"]'):
        services.apply(policy("a", codes=codes), author="x", reason="", now=now)
    old, new = services.two_revisions("a", 1)
    assert (old.number, new.number) == (1, 3)
    assert services.compare_revisions(old, new).lines[:2] == ("--- a revision 1", "+++ a revision 3")
    for numbers, message in (((9,), "Policy a has no revision 9"), ((1, 9), "Policy a has no revision 9")):
        with pytest.raises(services.NotFound, match=message):
            services.two_revisions("a", *numbers)
    with pytest.raises(services.NotFound, match="Unknown policy b"):
        services.two_revisions("b", 1)
    services.delete("a", author="x", reason="", now=now)
    with pytest.raises(services.NotFound, match="Policy a is not active"):
        services.two_revisions("a", 1)
    assert [row.number for row in services.two_revisions("a", 1, 2)] == [1, 2]
