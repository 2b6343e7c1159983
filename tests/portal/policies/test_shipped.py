"""The policies that come with the portal, held against the tables that they are made from."""

from datetime import datetime

import pytest
from django.utils import translation

from kcover import reasons
from kcover.faults import catalog
from kcover.sentences import shipped_policies
from kcover_portal.lib import localization
from kcover_portal.policies import queries, services
from kcover_portal.policies.services import shipped
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db
RESETS = ("drain_and_reset", "drain_and_reboot")
HANDS = {54, 74, 79}  # power leads, NVLink, the bus: a person looks
REPAIR = ["cordon", "restartJobs", "drain", "reboot"]


@pytest.mark.parametrize("name", sorted(path.name for path in shipped.FOLDER.iterdir()))
def test_shipped_policies_are_valid_and_hold_no_surprise(name: str) -> None:
    validated = services.validate((shipped.DEFAULTS.parent / name).read_bytes())
    assert (validated.problems, validated.warnings) == ((), ())


@pytest.mark.parametrize("mode", shipped.MODES)
@pytest.mark.parametrize("pack", shipped.PACKS)
def test_a_pack_is_valid_in_every_mode(pack: str, mode: str, now: datetime) -> None:
    validated = services.validate(shipped.pack_text(pack, mode))
    assert (validated.problems, validated.warnings) == ((), ())
    applied = services.install_pack(pack, mode, author="user:anna", reason="", now=now)
    assert {one.rule.mode for one in queries.candidates()} == {mode}
    assert {row.revision for row in applied} == {1}
    services.install_pack(pack, mode, author="user:anna", reason="", now=now)
    assert {row.revision for row in queries.policies()} == {1}


def test_every_shipped_file_is_in_a_pack() -> None:
    files = {name for names in shipped.PACKS.values() for name in names}
    assert files == {path.name for path in shipped.FOLDER.iterdir()}


@pytest.mark.parametrize(("pack", "mode", "field"), [("x", "shadow", "pack"), ("kce", "paused", "mode")])
def test_an_unknown_pack_or_mode_is_named(pack: str, mode: str, field: str) -> None:
    with pytest.raises(services.UnknownPack) as refused:
        shipped.pack_text(pack, mode)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("pack", "kind", "code", "actions", "person"),
    [
        ("kcover", "preflight", "slow", ["cordon"], False),
        ("kcover", "preflight", "abnormal", ["cordon"], False),
        ("kcover", "event", "Error", ["cordon"], False),
        ("kcover", "event", "Day2CheckFailed", ["cordon"], False),
        ("kcover", "check", "metax_ecc", ["cordon"], False),
        ("kcover", "xid", 79, ["cordon", "restartJobs"], False),
        ("kcover", "xid", 63, [], False),
        ("kcover", "xid", 31, [], False),
        ("kcover", "sxid", 11004, ["cordon", "restartJobs"], False),
        ("kcover", "sxid", 11012, [], False),
        ("konduktor", "xid", 79, ["taint"], False),
        ("konduktor", "xid", 9999, ["taint"], False),
        ("konduktor", "xid", 13, [], False),
        ("konduktor", "other", "peermem_invalid_context", ["taint"], False),
        ("konduktor", "other", "invalid_device_ordinal", ["taint"], False),
        ("konduktor", "other", "anything", [], False),
        ("konduktor", "sxid", 11004, ["taint"], False),
        ("konduktor", "sxid", 11012, [], False),
        ("kce", "xid", 62, ["cordon", "drain", "reboot"], False),
        ("kce", "xid", 79, ["cordon"], True),
        ("kce", "xid", 74, ["cordon"], False),
        ("kce", "xid", 31, [], False),
        ("autopilot", "check", "dcgm", ["cordon"], False),
        ("autopilot", "check", "remapped", ["cordon", "drain", "reboot"], False),
        ("autopilot", "check", "pvc", [], True),
        ("autopilot", "alert", "LowPCIeBandwidth", ["cordon"], False),
        ("autopilot", "alert", "RemappedRowsActive", ["cordon", "drain", "reboot"], False),
        ("autopilot", "alert", "PVCAlert", [], True),
        ("autopilot", "alert", "AutopilotPodsFailing", [], True),
        ("nvidia", "xid", 62, ["cordon", "restartJobs", "drain", "reboot"], False),
        ("ladder", "xid", 62, ["cordon", "restartJobs", "drain", "reboot", "powerCycle", "repair"], False),
        ("ladder", "xid", 79, ["cordon", "restartJobs", "repair"], False),
        ("ladder", "xid", 13, [], False),
    ],
)
def test_each_pack_acts_on_its_faults(
    pack: str, kind: str, code: int | str, actions: list[str], person: bool, now: datetime
) -> None:
    services.install_pack(pack, author="user:anna", reason="", now=now)
    assert meets(kind, code) == (actions, person)


def test_the_packs_kcover_and_nvidia_isolate_nodes_for_the_same_xids_and_sxids(now: datetime) -> None:
    services.install_pack("kcover", author="user:anna", reason="", now=now)
    alone = {(kind, code): meets(kind, code)[0] for kind in ("xid", "sxid") for code in catalog.entries(kind)}
    services.install_pack("nvidia", author="user:anna", reason="", now=now)
    both = {(kind, code): meets(kind, code)[0] for kind, code in alone}
    assert {key for key, actions in alone.items() if actions} == {key for key, actions in both.items() if actions}
    assert {tuple(actions) for actions in alone.values()} == {(), ("cordon", "restartJobs")}
    assert both["xid", 62] == REPAIR  # the rule that repairs the node comes first


def test_konduktors_taint_is_its_own(now: datetime) -> None:
    services.install_pack("konduktor", author="user:anna", reason="", now=now)
    [action] = queries.candidates()[0].rule.actions
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    assert dict(action.attribute) == taint


def test_each_pack_lists_its_installed_policies(now: datetime) -> None:
    services.install_pack("kce", author="user:anna", reason="", now=now)
    found = {pack.name: pack for pack in services.packs()}
    assert list(found) == list(shipped.PACKS)
    assert found["kce"].installed == ("kce", "kce-fallen-off-the-bus", "kce-global")
    assert found["nvidia"].installed == ()
    assert [policy.name for policy in found["nvidia"].policies] == ["defaults"]


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
        (48, REPAIR, False),
        (62, REPAIR, False),
        (64, REPAIR, False),
        (79, ["cordon", "restartJobs"], True),
    ],
)
def test_the_defaults_follow_kces_table(code: int, actions: list[str], person: bool, now: datetime) -> None:
    install(now)
    assert meets("xid", code) == (actions, person)


def test_the_defaults_follow_the_catalog(now: datetime) -> None:
    install(now)
    for code, fact in catalog.entries("xid").items():
        if code in HANDS:
            expected = (["cordon", "restartJobs"], True)
        elif fact.node_response in RESETS and fact.cordon_immediately:
            expected = (REPAIR, False)
        elif fact.node_response == "record_plan_replacement":
            expected = ([], True)
        else:
            expected = ([], False)
        assert meets("xid", code) == expected, code
    for code, fact in catalog.entries("sxid").items():
        wanted = REPAIR if fact.node_response in RESETS else []
        assert meets("sxid", code) == (wanted, False), code


@pytest.mark.parametrize(("kind", "check"), [("xid", "SysLogsXIDError"), ("sxid", "SysLogsSXIDError")])
def test_the_defaults_treat_health_events_of_nvsentinel_as_the_same_code(kind: str, check: str, now: datetime) -> None:
    install(now)
    for code in catalog.entries(kind):
        assert meets("health", f"{check}/{code}") == meets(kind, code), code
    assert meets("health", f"GpuThermalWatch/{next(iter(catalog.entries(kind)))}") == ([], False)


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
    services.apply(policy("defaults"), author="user:anna", reason="mine", now=now)
    assert install(now) == []
    assert queries.in_force()[0].text == policy("defaults")
    services.delete("defaults", author="user:anna", reason="no", now=now)
    assert install(now) == []
    assert install(now, update=True) == ["defaults"]
    assert queries.in_force()[0].text.startswith("# A start for any NVIDIA fleet")


def test_what_shipped_rules_tell_people_is_said_in_chinese() -> None:
    rules = [rule for pack in shipped.packs() for policy in pack.policies for rule in policy.rules]
    told = {rule.escalate for rule in rules if rule.escalate}
    assert told | {shipped_policies.DEFAULT} == shipped_policies.TEXTS
    with translation.override("zh-hans"):
        for text in told:
            assert localization.say(reasons.of("escalated", message=text)) != text
        assert localization.told("Call Ann.") == "Call Ann."
