"""Any kernel log, read as the agents read it: each fault once, with what it means and which rule it would meet."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kcover import catalog, nvlink5, xid
from kcover.policy import matching
from kcover_portal.policies import queries as policies

KINDS_SHOWN = 200  # different faults; a log with more of them is not read by a person
NAMES_SHOWN = 3


@dataclass(slots=True)
class Seen:
    """One fault of one device: how often the log has it, its first line, and the programs that were named."""

    kind: str
    code: int
    pci: str
    line: str
    count: int = 0
    fatal: bool | None = None
    cause: int | None = None
    processes: list[str] = field(default_factory=list)

    @property
    def fact(self) -> catalog.Fact | None:
        """What the code means, as far as a catalogue knows it."""
        return catalog.describe(self.kind, self.code)

    @property
    def remedy(self) -> str:
        """What is usually done about it."""
        return catalog.remedy(self.kind, self.code)

    @property
    def severity(self) -> str:
        """How bad it is, by the line's own word where it has one."""
        return catalog.severity(self.kind, self.code, fatal=self.fatal)

    @property
    def program(self) -> bool:
        """Whether it is a program's doing and no fault of the node."""
        return catalog.is_program_fault(self.kind, self.code, cause=self.cause, fatal=self.fatal)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fault and the rule that it would meet, if any, with every rule that was asked."""

    seen: Seen
    rule: matching.Candidate | None
    tried: tuple[matching.Tried, ...]


def read(data: bytes) -> tuple[list[Seen], int]:
    """The faults of a log in the order in which they first appear, and how many further kinds were left out.

    The three lines of one SXid, and every repetition, fold into one. Bytes that are no text are shown as such.
    """
    found: dict[tuple[str, int, str], Seen] = {}
    left_out: set[tuple[str, int, str]] = set()
    for sighting in xid.scan(data):
        key = (sighting.kind, sighting.code, xid.slot(sighting.pci) or "")
        if key not in found and len(found) >= KINDS_SHOWN:
            left_out.add(key)
            continue
        seen = found.setdefault(key, Seen(sighting.kind, sighting.code, key[2], sighting.line))
        seen.count += 1
        fatal = sighting.fatal if sighting.fatal is not None else nvlink5.fatal(sighting)
        seen.fatal = fatal if seen.fatal is None else seen.fatal or bool(fatal)
        seen.cause = sighting.cause if seen.cause is None else seen.cause
        if sighting.process and sighting.process not in seen.processes[:NAMES_SHOWN]:
            seen.processes.append(sighting.process)
    return list(found.values()), len(left_out)


def judged(seen: list[Seen], labels: Mapping[str, str]) -> list[Verdict]:
    """Each fault held against the rules in force on a node with these labels; guards are not asked."""
    rules = policies.candidates()
    verdicts = []
    for one in seen:
        rule, tried = matching.match(
            rules, kind=one.kind, code=str(one.code), cause=one.cause, labels=labels, fatal=one.fatal
        )
        verdicts.append(Verdict(one, rule, tried))
    return verdicts
