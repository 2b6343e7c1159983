"""Analyse a kernel log as the agents do: each fault once, with its meaning and the rule that would match."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from kcover.decisions import match
from kcover.faults import catalog, nvlink5, xid
from kcover_portal.policies import queries as policies

MAX_FAULTS_SHOWN = 200  # different faults; nobody reads a longer list
MAX_NAMES_SHOWN = 3
MAX_LINES = 20_000  # with faults: a second of CPU


@dataclass(slots=True)
class LogFault:
    """One fault of one device: its count, first log line and process names."""

    kind: str
    code: int
    pci: str
    line: str
    count: int = 0
    fatal: bool | None = None
    cause: int | None = None
    processes: list[str] = field(default_factory=list)

    @property
    def fact(self) -> catalog.Entry | None:
        """The catalog entry of the code, if any."""
        return catalog.describe(self.kind, self.code)

    @property
    def remedy(self) -> str:
        return catalog.remedy(self.kind, self.code)

    @property
    def severity(self) -> str:
        """The severity; that of the log line if it has one."""
        return catalog.severity(self.kind, self.code, fatal=self.fatal)

    @property
    def program(self) -> bool:
        """True if it is an application fault."""
        return catalog.is_user_fault(self.kind, self.code, cause=self.cause, fatal=self.fatal)


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A fault, the rule that would match, if any, and every rule that was evaluated."""

    seen: LogFault
    rule: match.Candidate | None
    tried: tuple[match.TriedRule, ...]


def read(data: bytes) -> tuple[list[LogFault], int, bool]:
    """The faults of a log in the order in which they first appear, and how many further faults were left out.

    The third value says whether the log has more than MAX_LINES lines with faults: the others were not read.
    The three lines of one SXid, and every repetition, count as one. Bytes that are not text are shown as such.
    """
    found: dict[tuple[str, int, str], LogFault] = {}
    left_out: set[tuple[str, int, str]] = set()
    lines = xid.scan(data)
    for fault_line in itertools.islice(lines, MAX_LINES):
        key = (fault_line.kind, fault_line.code, xid.slot(fault_line.pci) or "")
        if key not in found and len(found) >= MAX_FAULTS_SHOWN:
            left_out.add(key)
            continue
        seen = found.setdefault(key, LogFault(fault_line.kind, fault_line.code, key[2], fault_line.line))
        seen.count += 1
        fatal = fault_line.fatal if fault_line.fatal is not None else nvlink5.is_fatal(fault_line)
        seen.fatal = fatal if seen.fatal is None else seen.fatal or bool(fatal)
        seen.cause = fault_line.cause if seen.cause is None else seen.cause
        if fault_line.process and fault_line.process not in seen.processes[:MAX_NAMES_SHOWN]:
            seen.processes.append(fault_line.process)
    return list(found.values()), len(left_out), next(lines, None) is not None


def judged(seen: list[LogFault], labels: Mapping[str, str]) -> list[RuleMatch]:
    """Match each fault with the active rules for a node with these labels; guards are not evaluated."""
    rules = policies.candidates()
    verdicts = []
    for fault in seen:
        rule, tried = match.match(
            rules, kind=fault.kind, code=str(fault.code), cause=fault.cause, labels=labels, fatal=fault.fatal
        )
        verdicts.append(RuleMatch(fault, rule, tried))
    return verdicts
