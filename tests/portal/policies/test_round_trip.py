"""Bytes in, export, and in again: the same rules, whoever wrote them and however."""

from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from kcover.policy import document
from kcover_portal.fleet.models import Cluster
from kcover_portal.notify.models import Channel
from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from kcover_portal.sources.models import Source
from tests.kcover import policy_texts
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.fixture
def named_things(db: None) -> None:
    Channel.objects.create(name="on-call", kind=Channel.Kind.MAIL, created_at=NOW)
    cluster = Cluster.objects.create(name="east", created_at=NOW)
    Source.objects.create(name="prometheus", kind=Source.Kind.PROMETHEUS, cluster=cluster, created_at=NOW)


@st.composite
def texts(draw) -> tuple[str, dict[tuple[str, str], document.Policy | document.StandbyPolicy]]:
    """A text of several policies in one of YAML's styles, and what it says."""
    policies = {(one.kind, one.name): one for one in draw(st.lists(policy_texts.policies(), min_size=1, max_size=3))}
    standby = [key for key in policies if key[0] == document.STANDBY]
    for key in standby[1:]:
        del policies[key]
    style = {
        "default_flow_style": draw(st.sampled_from((None, True, False))),
        "width": draw(st.sampled_from((20, 120))),
    }
    written = [
        yaml.safe_dump(
            document.render(one),
            allow_unicode=draw(st.booleans()),
            explicit_start=draw(st.booleans()),
            explicit_end=draw(st.booleans()),
            default_style=draw(st.sampled_from((None, None, '"'))) if one.kind == document.STANDBY else None,
            **style,
        )
        for one in policies.values()
    ]
    comment = draw(st.sampled_from(("", "# ours\n")))
    return "---\n".join(comment + text for text in written), policies


def in_force() -> dict[tuple[str, str], document.Policy | document.StandbyPolicy]:
    rows = [*queries.in_force(queries.RESCUE), *queries.in_force(queries.STANDBY)]
    return {(row.policy.kind, row.policy.name): document.read(row.document) for row in rows}


@given(texts())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_export_equals_the_applied_policies(named_things: None, given_text) -> None:
    text, policies = given_text
    Policy.objects.all().delete()
    services.apply(text.encode(), author="x", reason="", now=NOW)
    assert in_force() == policies
    exported = services.export().encode()
    validated = services.validate(exported)
    assert validated.problems == ()
    assert {one.key: one.policy for one in validated.policies} == policies
    assert {row.revision for row in services.apply(exported, author="x", reason="", now=NOW)} == {1}
    Policy.objects.all().delete()
    services.apply(exported, author="x", reason="", now=NOW)
    assert in_force() == policies


@pytest.mark.parametrize(
    "text",
    [
        "%YAML 1.1\n---\n" + policy("a"),
        policy("a") + "...\n",
        "# end\n---\n# begin\n" + policy("a") + "# after\n",
        policy("a").replace("[{name: cordon}]", "&x [{name: cordon}]"),
        policy("a", extra="      escalate: |\n        ---\n        look\n"),
        policy("a").replace("\n", "\r\n"),
        "\ufeff" + policy("a"),
    ],
)
def test_an_export_can_be_applied_beside_other_policies(text: str) -> None:
    services.apply(text, author="x", reason="", now=NOW)
    services.apply(policy("b", codes='["63"]') + "---\n" + policy("0a", codes='["64"]'), author="x", reason="", now=NOW)
    before = in_force()
    validated = services.validate(services.export())
    assert (validated.problems, {one.key: one.policy for one in validated.policies}) == ((), before)
    assert {row.revision for row in services.apply(services.export(), author="x", reason="", now=NOW)} == {1}


def test_the_authors_words_are_kept() -> None:
    text = "# why\n" + policy("a") + "# and how\n"
    services.apply(text, author="x", reason="", now=NOW)
    assert services.export() == text


def test_selected_policies_are_exported_by_name() -> None:
    services.apply(policy("a") + "---\n" + policy("b", codes='["63"]'), author="x", reason="", now=NOW)
    assert services.export(["b"]) == policy("b", codes='["63"]')
