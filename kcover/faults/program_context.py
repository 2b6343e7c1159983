"""Tell the faults of programs (Xid 13 and 31) from those of a GPU, by what else failed with them.

One program that fails on many GPUs is at fault itself. Many programs that fail on one GPU, and on no other, point to
the GPU: NVIDIA then recommends its diagnostics (https://docs.nvidia.com/deploy/xid-errors/, Xid 13 and 31). Everything
else stays what the catalog calls it: a fault of a program.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kcover import reasons
from kcover.faults import xid

CODES = (13, 31)
WINDOW = timedelta(days=1)  # as NVIDIA counts repetitions of Xid 13
MIN_PROGRAMS = 3  # on one GPU
MIN_GPUS = 3  # with one program
MAX_NAMED = 5
SUSPECT_CODE = "gpu-suspect"  # of the incident, of kind ``other``


class Suspect(StrEnum):
    """The suspect: the GPU or the program."""

    GPU = "gpu"
    PROGRAM = "program"
    UNDECIDED = "undecided"  # treated as a program


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A fault of a program on a GPU. ``gpu`` is unique in the fleet; ``program`` is "" if the line names none."""

    gpu: str
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The suspect and the reason."""

    suspect: Suspect
    because: reasons.Reason


def program_of(message: str) -> str:
    """The program that a line of the kernel log names, "" if none."""
    found = xid.parse_line(message)
    name = found.process if found is not None else None
    return name.strip() if name and "unknown" not in name else ""


def judge(gpu: str, sightings: Iterable[Sighting]) -> Judgement:
    """Judge a GPU by all sightings of the last WINDOW, on this GPU and on others. Their order does not matter.

    A program that failed on several GPUs exonerates the GPU, whatever else failed there: the safe reading.
    """
    gpus_of: dict[str, set[str]] = {}
    for seen in sightings:
        if seen.program:
            gpus_of.setdefault(seen.program, set()).add(seen.gpu)
    here = {program: gpus for program, gpus in gpus_of.items() if gpu in gpus}
    widest = max(sorted(here), key=lambda program: len(here[program]), default="")
    if widest and len(here[widest]) >= MIN_GPUS:
        because = reasons.of("program_on_many_gpus", program=widest, gpus=len(here[widest]), within=_window())
        return Judgement(suspect=Suspect.PROGRAM, because=because)
    if len(here) >= MIN_PROGRAMS and all(gpus == {gpu} for gpus in here.values()):
        names = ", ".join(sorted(here)[:MAX_NAMED])
        because = reasons.of("programs_on_one_gpu", programs=len(here), names=names, within=_window())
        return Judgement(suspect=Suspect.GPU, because=because)
    return Judgement(
        suspect=Suspect.UNDECIDED, because=reasons.of("program_undecided", programs=len(here), within=_window())
    )


def _window() -> reasons.Reason:
    return reasons.span(WINDOW)
