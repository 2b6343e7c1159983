"""The policies that come with the portal, held against the tables that they are made from."""

from datetime import datetime

import pytest

from kcover.faults import catalog
from kcover_portal.policies import queries, services
from kcover_portal.policies.services import shipped
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db
RESETS = ("drain_and_reset", "drain_and_reboot")
HANDS = {54, 74, 79}  # power leads, NVLink, the bus: a person looks


@pytest.mark.parametrize("name", ["kce.yaml", "defaults.yaml"])
def test_shipped_policies_are_valid_and_hold_no_surprise(name: str) -> None:
    reading = services.validate((shipped.DEFAULTS.parent / name).read_bytes())
    assert (reading.problems, reading.warnings) == ((), ())


def install(now: datetime, **more: bool) -> list[str]:
    return [row.name for row in services.install_defaults(author="user:anna", reason="begin", now=now, **more)]


def meets(kind: str, code: int | str) -> tuple[list[str], bool]:
    """The actions of the rule that the fault meets, and whether a person is called; neither where none matches."""
    chosen, _ = queries.effective(kind=kind, code=str(code), labels={})
    if chosen is None:
        return [], False
    return [action.name for action in chosen.rule.actions], chosen.rule.escalate is not None


def test_the_defaults_only_watch_and_come_after_everybody_elses(now: datetime) -> None:
    assert install(now) == ["defaults"]
    assert {(one.rule.mode, one.rule.priority) for one in queries.candidates()} == {("shadow", 1)}


@pytest.mark.parametrize(
    ("code", "actions", "person"),
    [
        (48, ["cordon", "drain", "reboot"], False),
        (62, ["cordon", "drain", "reboot"], False),
        (64, ["cordon", "drain", "reboot"], False),
        (79, ["cordon"], True),
    ],
)
def test_the_defaults_follow_kces_table(code: int, actions: list[str], person: bool, now: datetime) -> None:
    install(now)
    assert meets("xid", code) == (actions, person)


def test_the_defaults_follow_the_catalog(now: datetime) -> None:
    install(now)
    for code, fact in catalog.entries("xid").items():
        if code in HANDS:
            expected = (["cordon"], True)
        elif fact.node_response in RESETS and fact.cordon_immediately:
            expected = (["cordon", "drain", "reboot"], False)
        elif fact.node_response == "record_plan_replacement":
            expected = ([], True)
        else:
            expected = ([], False)
        assert meets("xid", code) == expected, code
    for code, fact in catalog.entries("sxid").items():
        wanted = ["cordon", "drain", "reboot"] if fact.node_response in RESETS else []
        assert meets("sxid", code) == (wanted, False), code


def test_a_pending_remap_is_judged_from_the_counters(now: datetime) -> None:
    install(now)
    assert meets("xid", 63) == ([], False)
    assert meets("check", "remapped") == (["cordon", "drain", "reboot"], False)
    assert meets("check", "pciebw") == ([], False)


def test_every_reboot_of_the_defaults_gives_the_node_back(now: datetime) -> None:
    install(now)
    for one in queries.candidates():
        assert one.rule.uncordons is any(action.name == "reboot" for action in one.rule.actions)


def test_installing_again_changes_nothing_that_people_made_of_them(now: datetime) -> None:
    assert services.missing_defaults() == ["defaults"]
    services.apply(policy("defaults"), author="user:anna", reason="mine", now=now)
    assert services.missing_defaults() == []
    assert install(now) == []
    assert queries.in_force()[0].text == policy("defaults")
    services.delete("defaults", author="user:anna", reason="no", now=now)
    assert (services.missing_defaults(), install(now)) == ([], [])
    assert install(now, update=True) == ["defaults"]
    assert queries.in_force()[0].text.startswith("# A start for any NVIDIA fleet")
