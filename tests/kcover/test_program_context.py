"""Xid 13 and 31: the GPU is suspected only if nothing else explains them."""

import random

import pytest

from kcover.faults.program_context import Sighting, Suspect, judge, program_of

A, B, C, D = "n1 a", "n1 b", "n2 a", "n3 a"


def seen(*pairs: tuple[str, str]) -> list[Sighting]:
    return [Sighting(gpu=gpu, program=program) for gpu, program in pairs]


@pytest.mark.parametrize(
    ("sightings", "suspect"),
    [
        (seen((A, "x"), (A, "y"), (A, "z")), Suspect.GPU),
        (seen((A, "x"), (A, "y"), (A, "z"), (B, "w")), Suspect.GPU),
        (seen((A, "x"), (B, "x"), (C, "x")), Suspect.PROGRAM),
        (seen((A, "x"), (B, "x"), (C, "x"), (A, "y"), (A, "z")), Suspect.PROGRAM),
        (seen((A, "x"), (A, "y")), Suspect.UNDECIDED),
        (seen((A, "x"), (A, "x"), (A, "x")), Suspect.UNDECIDED),
        (seen((A, "x"), (A, "y"), (A, "z"), (B, "z")), Suspect.UNDECIDED),  # z fails elsewhere, too
        (seen((A, ""), (A, ""), (A, "")), Suspect.UNDECIDED),
        (seen((B, "x"), (B, "y"), (B, "z")), Suspect.UNDECIDED),  # another GPU
        ([], Suspect.UNDECIDED),
    ],
)
def test_the_suspect_is_found_in_any_order_of_sightings(sightings: list[Sighting], suspect: Suspect) -> None:
    for number in range(3):
        shuffled = random.Random(number).sample(sightings, len(sightings))
        found = judge(A, shuffled)
        assert found.suspect is suspect
        assert found == judge(A, sightings)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("NVRM: Xid (PCI:0000:4e:00): 31, pid=7, name=train run, Ch 00000008, intr 00000000", "train run"),
        ("NVRM: Xid (PCI:0000:4e:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception", ""),
        ("NVRM: Xid (PCI:0000:4e:00): 13, Graphics Exception", ""),
        ("nothing", ""),
    ],
)
def test_the_program_of_a_line(line: str, program: str) -> None:
    assert program_of(line) == program
