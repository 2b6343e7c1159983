"""Warnings about rules that are valid but may have unexpected effects."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from kcover.decisions import match, overlap
from kcover.faults import catalog


@dataclass(frozen=True, slots=True)
class Advice:
    """One warning, about one place of one policy."""

    policy: str
    path: tuple[str | int, ...]
    message: str


def weigh(rules: Iterable[match.Candidate], *, fresh: Collection[str]) -> list[Advice]:
    """Warnings about the rules of the ``fresh`` policies, next to all others that would be in force with them."""
    ranked = match.rank(rules)
    said = [advice for one in ranked if one.policy in fresh for advice in _about_codes(one)]
    for first, second in combinations(ranked, 2):
        if first.policy in fresh or second.policy in fresh:
            said += _about_pair(first, second, fresh=fresh)
    return said


def _about_codes(one: match.Candidate) -> Iterator[Advice]:
    at: tuple[str | int, ...] = ("spec", "rules", one.rule.index)
    for said, kind, codes, path in (
        ("Xid", "xid", one.rule.codes or (), (*at, "errorCode")),
        ("SXid", "sxid", one.rule.sxids, (*at, "match", "sxid")),
    ):
        for index, code in enumerate(codes):
            if catalog.is_user_fault(kind, int(code)):
                whose = "a program's doing" if kind == "xid" else "corrected by the switch itself"
                message = f"{said} {code} is {whose}, not a fault of the node: this rule acts on nodes for it"
                yield Advice(one.policy, (*path, index), message)
            elif catalog.describe(kind, int(code)) is None:
                yield Advice(one.policy, (*path, index), f"no catalogue knows {said} {code}")


def _about_pair(first: match.Candidate, second: match.Candidate, *, fresh: Collection[str]) -> Iterator[Advice]:
    """The most important warning about the order of two rules; ``first`` is evaluated first."""
    fault = overlap.shared(first.rule, second.rule)
    if fault is None:
        return
    about = second if second.policy in fresh else first
    place = ("spec", "rules", about.rule.index)
    covered = overlap.covers(first.rule, second.rule)
    if first.rule.priority == second.rule.priority:
        message = (
            f"{first.name} and {second.name} both have priority {first.rule.priority} and can match {fault} on one"
            " node: the older policy's rule runs, then the one written first"
        )
        message += f", so {second.name} never does" if covered else ""
    elif covered:
        message = (
            f"{second.name} never runs: {first.name} comes before it and matches whatever it matches"
            f"{_nothing_done(first)}"
        )
    elif first.rule.mode == "shadow" and second.rule.mode != "shadow":
        message = f"{first.name} comes before {second.name} for {fault}{_nothing_done(first)}"
    else:
        return  # a higher priority that takes a part is what priorities are for
    yield Advice(about.policy, place, message)


def _nothing_done(first: match.Candidate) -> str:
    return ", and in shadow mode it does nothing" if first.rule.mode == "shadow" else ""
