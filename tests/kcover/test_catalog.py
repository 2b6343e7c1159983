import importlib.resources
import json

import pytest

from kcover import catalog

HARMLESS = {
    *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
    *(22013, 24001, 24002, 24003),  # so far konduktor's list, then gpud's
    *(20001, 20009, 20012),
}


def test_every_xid_of_the_catalogue_is_known():
    assert sorted(catalog.facts("xid")) == list(range(1, 174))
    assert len(catalog.facts("sxid")) == 92


@pytest.mark.parametrize("kind", ["xid", "sxid"])
def test_every_fact_is_complete(kind):
    for code, fact in catalog.facts(kind).items():
        assert (fact.kind, fact.code) == (kind, code)
        assert fact.title
        assert fact.category
        assert fact.immediate_action
        assert fact.source.startswith(("https://", "NVIDIA "))
        assert fact.remedy.endswith(".")
        assert fact.severity in (*catalog.SEVERITIES, "varies")
        assert (fact.cordon_immediately is None) == (fact.severity == "varies")
        assert catalog.remedy(kind, code) == fact.remedy


def test_the_fact_of_a_lost_gpu():
    fact = catalog.xid(79)
    assert fact is not None
    assert fact.mnemonic == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert (fact.severity, fact.node_response, fact.cordon_immediately) == ("fatal", "drain_and_reboot", True)
    assert fact.immediate_action == "reboot_node"
    assert "reboot" in fact.remedy
    assert catalog.describe("xid", 79) is fact


def test_the_fact_of_a_switch_fault():
    fact = catalog.sxid(10003)
    assert fact is not None
    assert fact.scope == "whole fabric of the node"
    assert fact.propagates_to_xid == (74, 45)
    assert fact.category == "host interface"
    assert fact.severity == "fatal"


def test_what_is_not_known():
    assert catalog.xid(999) is None
    assert catalog.sxid(79) is None
    assert catalog.describe("check", 79) is None
    assert catalog.facts("check") == {}
    assert catalog.severity("xid", 999) == "warning"
    assert catalog.remedy("xid", 999).startswith("In no catalogue")
    assert not catalog.is_program_fault("xid", 999)
    assert not catalog.is_program_fault("check", 13)


def test_the_codes_of_programs():
    program = {code for code in catalog.facts("xid") if catalog.is_program_fault("xid", code)}
    assert program == {4, 8, 11, 13, 24, 25, 31, 37, 43, 45, 66, 67, 69, 80, 106, 107, 108, 137, 141}


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 94, 95, 109, 119, 149])
def test_the_codes_of_nodes(code):
    assert not catalog.is_program_fault("xid", code)


def test_a_code_that_programs_cause_is_the_nodes_where_it_asks_for_a_reset():
    fact = catalog.xid(109)
    assert fact is not None
    assert (fact.app_caused, fact.node_response) == (True, "drain_and_reset")
    assert not catalog.is_program_fault("xid", 109)


def test_what_a_previous_xid_caused_is_no_fault_of_its_own():
    assert catalog.is_program_fault("xid", 79, cause=149)
    assert catalog.is_program_fault("xid", 999, cause=0)
    assert not catalog.is_program_fault("sxid", 10003, cause=149)


def test_the_harmless_sxids():
    assert {code for code, fact in catalog.facts("sxid").items() if fact.harmless} == HARMLESS
    assert {code for code in catalog.facts("sxid") if catalog.is_program_fault("sxid", code)} == HARMLESS
    assert catalog.is_program_fault("sxid", 20001, fatal=False)
    assert not catalog.is_program_fault("sxid", 20001, fatal=True)
    assert catalog.is_program_fault("xid", 13, fatal=True)


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
def test_the_printed_word_outweighs_the_table(kind, code, fatal, severity):
    assert catalog.severity(kind, code, fatal=fatal) == severity


def test_the_tables_are_read_once():
    assert catalog.facts("xid") is catalog.facts("xid")


@pytest.mark.parametrize("name", ["xids.json", "sxids.json"])
def test_the_files_name_their_sources_and_hold_nothing_unused(name):
    content = json.loads(importlib.resources.files("kcover").joinpath("data", name).read_text("utf-8"))
    assert content["sources"]
    assert {row["source"] for row in content["codes"]} == set(content["sources"])
    assert {row["node_response"] for row in content["codes"]} == set(content["remedies"])
    codes = [row["code"] for row in content["codes"]]
    assert codes == sorted(set(codes))
