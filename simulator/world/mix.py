"""The fault mix: which faults occur, how often, and what cures them, drawn from published failure rates.

The numbers and their sources are in ``data/fault_mix.json``. Rates are events per GPU-hour.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PRESETS = ("low", "mid", "high")
NOISE_LEVELS = ("quiet_production", "mixed", "academic")
CURES = ("self", "reset", "reboot", "repair")  # nothing; a GPU reset; a reboot of the node; a person at the machine
_DATA = Path(__file__).parents[1] / "data" / "fault_mix.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """The log output of one occurrence of a class, in order."""

    share: float
    xids: tuple[int, ...] = ()
    sxids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultClass:
    """One way in which hardware fails. ``cure`` gives the probability of each of ``CURES``; the sum is 1.

    ``rates`` are per preset. A class without an emission does not show in a kernel log.
    """

    id: str
    rates: Mapping[str, float]
    scope: str
    node_affecting: bool
    kills_job: float
    emissions: tuple[Emission, ...]
    cure: Mapping[str, float]

    @property
    def hangs_node(self) -> bool:
        return self.scope == "node" and self.id in ("node_unresponsive", "host_kernel_or_part")

    @property
    def visible(self) -> bool:
        """True if a virtual machine can show the fault, in its kernel log or by its silence."""
        return bool(self.emissions) or self.hangs_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFault:
    """A program fault: its rate is ``relative`` to the rate of Xid 31."""

    xids: tuple[int, ...]
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFault:
    id: str
    xids: tuple[int, ...]
    sxids: tuple[int, ...]
    cure: str
    kills_job: bool
    hangs_node: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMix:
    """All classes of hardware faults, and the program faults."""

    classes: tuple[FaultClass, ...]
    noise: tuple[ProgramFault, ...]
    noise_rates: Mapping[str, float]
    all_ranks: float
    persistence: Mapping[int, float]

    def rate(self, preset: str, *, node_affecting: bool = False, visible: bool = False) -> float:
        """Events per GPU-hour: of all classes that affect nodes, or only of the ``visible`` ones."""
        return sum(
            entry.rates[preset]
            for entry in self.classes
            if (entry.node_affecting or not node_affecting) and (entry.visible or not visible)
        )

    def noise_rate(self, level: str) -> float:
        """Program faults of every kind per GPU-hour."""
        return self.noise_rates[level] * sum(kind.relative for kind in self.noise)

    def draw(self, rng: random.Random, *, preset: str) -> DrawnFault:
        """One hardware fault that a virtual machine can show, drawn by the rates of a preset."""
        visible = [entry for entry in self.classes if entry.visible]
        chosen = rng.choices(visible, weights=[entry.rates[preset] for entry in visible])[0]
        emission = Emission(share=1.0)
        if chosen.emissions:
            emission = rng.choices(chosen.emissions, weights=[entry.share for entry in chosen.emissions])[0]
        return DrawnFault(
            id=chosen.id,
            xids=emission.xids,
            sxids=emission.sxids,
            cure=rng.choices(list(chosen.cure), weights=list(chosen.cure.values()))[0],
            kills_job=rng.random() < chosen.kills_job,
            hangs_node=chosen.hangs_node,
        )

    def draw_noise(self, rng: random.Random) -> tuple[int, ...]:
        """The Xids of one program fault on one GPU."""
        return rng.choices(self.noise, weights=[kind.relative for kind in self.noise])[0].xids


@cache
def load() -> FaultMix:
    """The fault mix that ships with the simulator."""
    return parse(json.loads(_DATA.read_text()))


def parse(data: Mapping[str, Any]) -> FaultMix:
    """A mix from the structure of the data file. Raises ValueError if shares or cures do not sum to 1."""
    noise = data["program_noise"]
    return FaultMix(
        classes=tuple(_class(entry) for entry in data["classes"]),
        noise=tuple(ProgramFault(xids=tuple(kind["xids"]), relative=kind["relative"]) for kind in noise["kinds"]),
        noise_rates=noise["xid31_rate"],
        all_ranks=noise["all_ranks"],
        persistence={int(code): seconds for code, seconds in data["repeat"]["persistence_seconds"].items()},
    )


def _class(entry: Mapping[str, Any]) -> FaultClass:
    emissions = tuple(
        Emission(share=kind["share"], xids=tuple(kind.get("xids", ())), sxids=tuple(kind.get("sxids", ())))
        for kind in entry["emission"]
    )
    for what, total in (
        ("cure", sum(entry["cure"].values())),
        ("emission", sum(kind.share for kind in emissions) or 1.0),
    ):
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"{entry['id']}: {what} sums to {total}, not 1")
    if unknown := set(entry["cure"]) - set(CURES):
        raise ValueError(f"{entry['id']}: unknown cure: {', '.join(sorted(unknown))}")
    return FaultClass(
        id=entry["id"],
        rates=entry["rate"],
        scope=entry["scope"],
        node_affecting=entry["node_affecting"],
        kills_job=entry["kills_job"],
        emissions=emissions,
        cure=entry["cure"],
    )
