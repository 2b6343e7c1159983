"""Kernel logs from public bug reports (``tests/field_cases``): the faults that each of them tells."""

import json
from pathlib import Path

import pytest

from agents import scan
from kcover.faults import weight
from kcover.faults.weight import Weight

CASES = Path(__file__).parents[1] / "field_cases"
SWITCH = ("sxid", 22013, "0000:04:00.0")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("02.kmsg", [("xid", 79, "0000:b3:00.0")]),
        ("05.log", [SWITCH] * 9),
        ("07.log", [("xid", 145, "0000:c5:00")]),
        (
            "08.log",
            [
                ("xid", 51, "0000:0d:00"),
                ("xid", 154, "0000:0d:00"),
                ("other", "gpu_reset_required", None),
                ("xid", 154, "0000:01:00"),
            ],
        ),
        ("12.log", [("xid", 79, "0000:09:00"), ("xid", 79, "0000:09:00.0")]),
        ("14.log", [("other", "gpu_reset_required", None), ("other", "gpu_lost", None)]),
        ("15.log", []),  # docs/operations/agents/not-seen.md
        ("17.log", []),  # corrected
        ("21.log", [("xid", 95, "0000:4e:00"), ("xid", 79, "0000:5a:00"), ("xid", 154, "0000:5a:00")]),
        ("24.log", [("xid", 154, "0000:01:00")]),  # an all-clear comes first
        ("26.log", [("xid", 79, "0000:1a:00")] * 2),
    ],
)
def test_a_published_log_contains_these_faults(
    name: str, told: list[tuple[str, int | str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert scan.main(str(CASES / name)) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [(row["kind"], row["code"], row["pci"]) for row in rows]
    assert [one for one in found if one[1] != "gpu_init_failed"] == told  # beside an Xid 79 it tells nothing new


@pytest.mark.parametrize(("name", "code"), [("07.log", 145), ("08.log", 51)])
def test_a_harmless_line_is_no_fault_of_the_node(name: str, code: int) -> None:
    lines = (CASES / name).read_text(encoding="utf-8").splitlines()
    [line] = [one for one in lines if f": {code}, " in one]
    assert weight.of_xid(code, line) is not Weight.NODE
