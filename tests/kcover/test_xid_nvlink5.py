import importlib.resources
import json

import pytest
from hypothesis import given, strategies as st

from kcover.faults import nvlink5, xid

DOWN = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"


def decode(code, text):
    fault_line = xid.parse_line(f"[1.0] NVRM: Xid (PCI:0009:01:00): {code}, {text}")
    assert fault_line is not None
    return nvlink5.decode(fault_line)


def test_every_field_of_a_line():
    assert decode(149, DOWN) == nvlink5.LinkEvent(
        code=149,
        unit="NETIR_LINK_EVT",
        subcode=33,
        error_status=0,
        printed_fatal=True,
        fatal=True,
        link=1,
        crossed=False,
        injected=False,
        words=(0x021425C6, 0, 0, 0, 0, 0),
        action="reset_gpu",
        investigation="investigate_peer_device",
    )
    assert decode(149, DOWN).name == "149.33 (err status 0x00000000)"


@pytest.mark.parametrize(
    ("code", "text", "fatal", "action"),
    [
        (144, "SAW_MVB Nonfatal XC0 i0 Link -1 (0x00000001 0x00000001)", False, "ignore"),
        (144, "SAW_MVB Nonfatal XC0 i0 Link -1 (0x00000001 0x00000002)", True, "reset_gpu"),
        (145, "RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000 0x00000000)", False, "ignore"),
        (145, "RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000001)", False, "xid154_decides_else_restart_app"),
        (146, "TLW_RX Fatal XC0 i0 Link 00 (0x0000000a 0x00000004)", True, "reset_gpu"),
        (146, "TLW_RX_PIPE1 Fatal XC0 i0 Link 00 (0x0000000b 0x00000004)", True, "reset_gpu"),
        (149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)", True, "ignore"),
        (150, "MSE_WATCHDOG Nonfatal XC0 i0 Link -1 (0x00000000 0x00000000)", True, "reset_gpu"),
        # not in the table: the printed word
        (145, "RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x00000005)", False, ""),
        (145, "RLW_CTRL Fatal XC0 i0 Link 00 (0x00000003 0x00000005)", True, ""),
        (146, "RLW_CTRL Fatal XC0 i0 Link 00 (0x00000003 0x80000000)", True, ""),
        (145, "RLW_CTRL Fatal XC0 i0 Link 00 (0x00100003 0x80000000)", True, ""),
    ],
)
def test_severities(code, text, fatal, action):
    event = decode(code, text)
    assert (event.fatal, event.action) == (fatal, action)
    assert event.printed_fatal == (" Fatal " in text)


def test_flags_and_link():
    event = decode(149, "pid=1, name=x, NETIR_LINK_EVT Fatal XC 1 i 2 Link -1 [0x3fffffff]")
    assert (event.crossed, event.injected, event.link) == (True, True, None)
    assert (event.subcode, event.error_status, event.words) == (63, 0, (0x3FFFFFFF,))
    assert decode(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 0 (0x04000000)").link == 0
    assert decode(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 0 (0x04000000)").subcode == 0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (143, DOWN),
        (151, DOWN),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 01"),
        (149, "NETIR_LINK_EVT Deadly XC0 i0 Link 01 (0x0)"),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x123456789)"),
        (149, ""),
    ],
)
def test_a_line_without_a_sub_code(code, text):
    assert decode(code, text) is None


def test_a_switch_line_has_no_sub_code():
    fault_line = xid.parse_line(f"nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 00149, {DOWN}")
    assert nvlink5.decode(fault_line) is None


def test_the_table_has_no_contradictions():
    content = json.loads(importlib.resources.files("kcover.faults").joinpath("data", "nvlink5.json").read_text("utf-8"))
    verdicts = {}
    for row in content["rows"]:
        assert row["code"] in nvlink5.CODES
        for unit in row["units"]:
            key = (row["code"], unit, row["subcode"], row["error_status"])
            assert verdicts.setdefault(key, (row["fatal"], row["action"])) == (row["fatal"], row["action"])
    assert {code for code, *_ in verdicts} == set(nvlink5.CODES)


@given(st.sampled_from(nvlink5.CODES), st.text() | st.text(max_size=5).map(lambda end: DOWN[:60] + end))
def test_any_text_is_parsed_without_errors(code, text):
    nvlink5.decode(xid.FaultLine(kind="xid", code=code, text=text))


WHOLE = (
    "NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 "
    "(0x04084507 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)"
)


@pytest.mark.parametrize("cut", range(WHOLE.index("Nonfatal") + 4, len(WHOLE) + 1, 3))
@pytest.mark.parametrize("word", ["Nonfatal", "NONFATAL", "Non-fatal"])
def test_a_printed_severity_survives_a_line_that_is_cut(cut, word):
    assert nvlink5.is_fatal(xid.parse_line(WHOLE.replace("Nonfatal", word)[:cut])) is False


@pytest.mark.parametrize("end", [" XC1", " Link 17", "(0x04084507 0x0"])
def test_a_printed_fatal_survives_it_too(end):
    line = WHOLE.replace("Nonfatal", "Fatal")
    assert nvlink5.is_fatal(xid.parse_line(line[: line.index(end) + len(end)])) is True


def test_the_table_outweighs_the_severity_of_a_line_that_is_cut_after_two_words():
    line = "NVRM: Xid (PCI:0009:01:00): 149, " + DOWN
    whole, cut = (nvlink5.decode(xid.parse_line(text)) for text in (line, line[: line.index(" 0x00000000") + 16]))
    assert cut is not None
    assert (cut.name, cut.fatal, cut.action) == (whole.name, whole.fatal, whole.action)
