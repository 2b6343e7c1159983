"""The WarmStandbyPolicy: kept and versioned like any policy, one in force at most."""

from datetime import datetime

import pytest
from django.db import IntegrityError, transaction

from kcover.policy import document
from kcover_portal.ledger.models import Entry
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from tests.portal.policies.texts import KCE_EXAMPLE, STANDBY_EXAMPLE, policy, standby

pytestmark = pytest.mark.django_db
MANY = "Only one WarmStandbyPolicy is allowed. "


def apply(text: str, now: datetime, **more: object) -> list[Policy]:
    return services.apply(text, author="user:anna", reason="test", now=now, **more)


def message(text: str) -> str:
    [problem] = services.validate(text).problems
    return problem.message


def test_a_standby_policy_has_revisions_like_any_policy(now: datetime) -> None:
    rows = apply(f"{KCE_EXAMPLE}---\n{STANDBY_EXAMPLE}", now)
    assert [(row.kind, row.name, row.revision) for row in rows] == [
        ("RescuePolicy", "test-1", 1),
        ("WarmStandbyPolicy", "cluster-warm-standby", 1),
    ]
    assert [row.name for row in queries.policies()] == ["test-1"]
    assert [one.policy for one in queries.candidates()] == ["test-1", "test-1"]
    assert queries.standby_rules() == (document.StandbyRule(index=0, origin={"env": "dev"}, target={"env": "dev"}),)
    assert Entry.objects.latest("pk").subject == "standby policy cluster-warm-standby"
    assert services.export() == f"{KCE_EXAMPLE}---\n{STANDBY_EXAMPLE}"
    assert [row.revision for row in apply(services.export(), now)] == [1, 1]


def test_without_a_standby_policy_there_are_no_rules(now: datetime) -> None:
    assert queries.standby_rules() == ()
    apply(standby(), now)
    services.delete("s", kind=queries.STANDBY, author="x", reason="", now=now)
    assert queries.standby_rules() == ()


def test_a_name_may_be_a_policys_and_a_standby_policys(now: datetime) -> None:
    apply(policy("s") + "---\n" + standby("s"), now)
    services.delete("s", author="x", reason="", now=now)
    assert [row.kind for row in Policy.objects.filter(revision__gt=0)] == ["WarmStandbyPolicy"]
    services.rollback("s", 1, author="x", reason="back", now=now)
    assert services.two_revisions("s", 1, 2)[1].document["kind"] == "RescuePolicy"
    with pytest.raises(services.NotFound):
        services.two_revisions("s", 1, 2, kind=queries.STANDBY)


def test_at_most_one_standby_policy_exists(now: datetime) -> None:
    assert message(standby("a") + "---\n" + standby("b")) == MANY + "Put these matches into a."
    assert "is defined twice" in message(standby("a") + "---\n" + standby("a"))
    apply(standby("a"), now)
    assert message(standby("b")) == MANY + "a is active. Use its name or disable it."
    apply(standby("a").replace("spare", "other"), now)
    services.delete("a", kind=queries.STANDBY, author="x", reason="", now=now)
    apply(standby("b"), now)
    with pytest.raises(services.InvalidPolicies, match="b is active"):
        services.rollback("a", 1, kind=queries.STANDBY, author="x", reason="back", now=now)


def test_the_database_keeps_it_at_one(now: datetime) -> None:
    Policy.objects.create(kind=queries.STANDBY, name="a", revision=1, created_at=now)
    Policy.objects.create(kind=queries.STANDBY, name="b", revision=0, created_at=now)
    with pytest.raises(IntegrityError), transaction.atomic():
        Policy.objects.filter(name="b").update(revision=1)


def test_a_text_for_one_kind_must_hold_that_kind(now: datetime) -> None:
    with pytest.raises(services.InvalidPolicies, match="It contains WarmStandbyPolicy s"):
        apply(standby(), now, name="s")
    with pytest.raises(services.InvalidPolicies, match="It contains RescuePolicy s"):
        apply(policy("s"), now, name="s", kind=queries.STANDBY)
    apply(standby(), now, name="s", kind=queries.STANDBY, expected=0)
