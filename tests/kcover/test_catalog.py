import importlib.resources
import json

import pytest

from kcover.faults import catalog

HARMLESS = {
    *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
    *(22013, 24001, 24002, 24003),  # so far konduktor's list, then gpud's
    *(20001, 20009, 20012),
}


def test_every_xid_has_an_entry():
    assert sorted(catalog.entries("xid")) == list(range(1, 174))
    assert len(catalog.entries("sxid")) == 92


@pytest.mark.parametrize("kind", ["xid", "sxid"])
def test_every_entry_is_complete(kind):
    for code, fact in catalog.entries(kind).items():
        assert (fact.kind, fact.code) == (kind, code)
        assert fact.title
        assert fact.category
        assert fact.immediate_action
        assert fact.source.startswith(("https://", "NVIDIA "))
        assert fact.remedy.endswith(".")
        assert fact.severity in (*catalog.SEVERITIES, "varies")
        assert (fact.cordon_immediately is None) == (fact.severity == "varies")
        assert catalog.remedy(kind, code) == fact.remedy


def test_the_entry_of_a_lost_gpu():
    fact = catalog.xid(79)
    assert fact is not None
    assert fact.mnemonic == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert (fact.severity, fact.node_response, fact.cordon_immediately) == ("fatal", "drain_and_reboot", True)
    assert fact.immediate_action == "reboot_node"
    assert "reboot" in fact.remedy
    assert catalog.describe("xid", 79) is fact


def test_the_entry_of_a_switch_fault():
    fact = catalog.sxid(10003)
    assert fact is not None
    assert fact.scope == "whole fabric of the node"
    assert fact.propagates_to_xid == (74, 45)
    assert fact.category == "host interface"
    assert fact.severity == "fatal"


def test_a_code_without_an_entry():
    assert catalog.xid(999) is None
    assert catalog.sxid(79) is None
    assert catalog.describe("check", 79) is None
    assert catalog.entries("check") == {}
    assert catalog.severity("xid", 999) == "warning"
    assert catalog.remedy("xid", 999).startswith("Not in the catalog")
    assert not catalog.is_user_fault("xid", 999)
    assert not catalog.is_user_fault("check", 13)


def test_codes_that_user_programs_cause():
    entries = catalog.entries("xid")
    program = {code for code, entry in entries.items() if entry.app_caused and catalog.is_user_fault("xid", code)}
    assert program == {4, 8, 11, 13, 24, 25, 31, 37, 43, 45, 66, 67, 69, 80, 106, 107, 108, 137, 141}
    others = [entry for code, entry in entries.items() if catalog.is_user_fault("xid", code) and code not in program]
    assert {entry.severity for entry in others} == {"info"}


@pytest.mark.parametrize(("kind", "code"), [("xid", 51), ("xid", 57), ("xid", 162), ("sxid", 10005)])
def test_information_is_no_fault_of_the_node_unless_the_line_says_fatal(kind, code):
    assert catalog.is_user_fault(kind, code)
    assert not catalog.is_hardware(kind, str(code))
    assert not catalog.is_user_fault(kind, code, fatal=True)


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 94, 95, 109, 119, 149])
def test_codes_of_node_faults(code):
    assert not catalog.is_user_fault("xid", code)


def test_a_user_code_that_needs_a_reset_is_a_node_fault():
    fact = catalog.xid(109)
    assert fact is not None
    assert (fact.app_caused, fact.node_response) == (True, "drain_and_reset")
    assert not catalog.is_user_fault("xid", 109)


def test_an_xid_caused_by_a_previous_one_is_not_a_node_fault():
    assert catalog.is_user_fault("xid", 79, cause=149)
    assert catalog.is_user_fault("xid", 999, cause=0)
    assert not catalog.is_user_fault("sxid", 10003, cause=149)


def test_the_harmless_sxids():
    assert {code for code, fact in catalog.entries("sxid").items() if fact.harmless} == HARMLESS
    listed = {code for code in catalog.entries("sxid") if catalog.is_user_fault("sxid", code)}
    assert listed == HARMLESS | {code for code, fact in catalog.entries("sxid").items() if fact.severity == "info"}
    assert catalog.is_user_fault("sxid", 20001, fatal=False)
    assert not catalog.is_user_fault("sxid", 20001, fatal=True)
    assert catalog.is_user_fault("xid", 13, fatal=True)


@pytest.mark.parametrize(
    ("kind", "code", "fatal", "severity"),
    [
        ("xid", 79, None, "fatal"),
        ("xid", 13, None, "warning"),
        ("xid", 43, None, "info"),
        ("xid", 63, None, "degraded"),
        ("xid", 149, None, "degraded"),
        ("xid", 149, True, "fatal"),
        ("xid", 149, False, "warning"),
        ("sxid", 12028, None, "degraded"),
        ("sxid", 12028, False, "degraded"),
        ("sxid", 12028, True, "fatal"),
        ("sxid", 10003, None, "fatal"),
        ("sxid", 10003, False, "warning"),
        ("sxid", 11012, None, "info"),
        ("sxid", 11012, False, "info"),
        ("sxid", 11012, True, "fatal"),
        ("sxid", 28006, None, "warning"),
        ("sxid", 28006, False, "warning"),
        ("sxid", 28006, True, "fatal"),
    ],
)
def test_the_printed_severity_overrides_the_table(kind, code, fatal, severity):
    assert catalog.severity(kind, code, fatal=fatal) == severity


def test_the_tables_are_loaded_once():
    assert catalog.entries("xid") is catalog.entries("xid")


@pytest.mark.parametrize("name", ["xids.json", "sxids.json"])
def test_the_files_name_their_sources_and_have_no_unused_rows(name):
    content = json.loads(importlib.resources.files("kcover.faults").joinpath("data", name).read_text("utf-8"))
    assert content["sources"]
    assert {row["source"] for row in content["codes"]} == set(content["sources"])
    assert {row["node_response"] for row in content["codes"]} == set(content["remedies"])
    codes = [row["code"] for row in content["codes"]]
    assert codes == sorted(set(codes))
