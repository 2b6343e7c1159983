"""Lemons: nodes that fail again and again, with the chance of the next fault.

About 1 % of nodes touch an eighth of all jobs of large clusters. The steps follow a Bayesian estimate for such a fleet:
of the nodes with two episodes of faults in 28 days, half are lemons; of those with three in 56 days, 86 %; with four,
99 %. Faults in storms do not count, or a bad rollout would make lemons of everyone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kcover import reasons
from kcover.machines import risk
from kcover.reports.downtime import Lost
from kcover.reports.records import NO_TIME, Fault, Place, Records

SHORT: Final = risk.WINDOW
LONG: Final = timedelta(days=56)
LEAST: Final = 2  # episodes in SHORT of a node that is listed
# Episodes in LONG, and the code of what to do; the strictest first.
STEPS: Final = ((4, "lemon_hold"), (3, "lemon_propose"))
VALIDATE: Final = "lemon_validate"
REPAIR_AFTER: Final = STEPS[0][0]  # episodes in LONG since the last repair, after which the portal reports a repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemon:
    """A node with repeated faults. ``faults``: episodes in SHORT, ``faults_long``: in LONG; ``causes``: faults in LONG
    by cause, the most frequent first; ``gpu_time``: lost in LONG; ``starts``: when the episodes in LONG began.
    """

    place: Place
    faults: int
    faults_long: int
    causes: tuple[tuple[str, int], ...]
    last_at: datetime
    gpu_time: timedelta
    risk: risk.Risk
    advice: reasons.Reason
    starts: tuple[datetime, ...]

    def episodes_since(self, at: datetime | None) -> int:
        """The episodes in LONG that began after ``at``, for example after the last repair; None: all."""
        return sum(at is None or start > at for start in self.starts)


def lemons(records: Records, pieces: Iterable[Lost], *, now: datetime) -> list[Lemon]:
    """The nodes with repeated faults that the cluster lists, the likeliest next fault first.

    ``records``: of LEARNS before now, so that the chance is of this fleet. ``pieces``: of LONG before now.
    """
    by_node: dict[int, list[Fault]] = {}
    for fault in records.faults:
        if not fault.in_storm and fault.open.since <= now:
            by_node.setdefault(fault.node, []).append(fault)
    lost: dict[int, timedelta] = {}
    for piece in pieces:
        lost[piece.place.node] = lost.get(piece.place.node, NO_TIME) + piece.gpu_time
    episodes = {node: risk.episodes(fault.open.since for fault in faults) for node, faults in by_node.items()}
    histories = (risk.History(place.listed.since, episodes.get(place.node, ())) for place in records.places)
    learned = risk.learn(risk.NODE, histories, now=now)
    found = []
    for place in records.places:
        starts = episodes.get(place.node, [])
        short, long = (sum(at > now - window for at in starts) for window in (SHORT, LONG))
        if place.listed.until is None and (short >= LEAST or long >= STEPS[-1][0]):
            faults = [fault for fault in by_node[place.node] if fault.open.since > now - LONG]
            found.append(
                Lemon(
                    place=place,
                    faults=short,
                    faults_long=long,
                    causes=tuple(Counter(fault.cause for fault in faults).most_common()),
                    last_at=max(fault.open.since for fault in faults),
                    gpu_time=lost.get(place.node, NO_TIME),
                    risk=risk.after(learned, short),
                    advice=_advice(short, long),
                    starts=tuple(sorted(at for at in starts if at > now - LONG)),
                )
            )
    return sorted(found, key=lambda one: (-one.risk.probability, -one.faults_long, -one.gpu_time, one.place.name))


def _advice(short: int, long: int) -> reasons.Reason:
    for least, code in STEPS:
        if long >= least:
            return reasons.of(code, faults=long, days=LONG.days)
    return reasons.of(VALIDATE, faults=short, days=SHORT.days)
