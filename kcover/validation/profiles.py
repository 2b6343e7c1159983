"""Validation profiles: the health checks that a node must pass, and the results of probes that must not be bad.

As JSON: ``{"checks": [{"check": "dcgm", "level": 2, "required": true}, ...], "probes": ["nvlink", ...]}``. ``required``
is true by default. A check that is not required may be skipped, for hardware that does not have what it tests.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from kcover import reasons
from kcover.checks import autopilot
from kcover.validation import nccl
from kcover.values.quote import short_repr, short_text

# The checks that a profile may name, with the arguments that it may set. dcgm is always the last one to run, because it
# has the most results: an agent leaves good results out of an answer that is too long.
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "remapped": (),
    "gpupower": (),
    "pciebw": ("threshold",),
    "gpumem": ("daxpy", "dgemm"),
    "dcgm": ("level",),
    **dict.fromkeys(nccl.NAMES, (nccl.LIMIT,)),  # no checks of agents: the portal runs them as Jobs, after the others
}
# The results of agents' probes that a profile may name. Agents report them all the time, so no run asks for them.
PROBES: Final = (
    *("gpu", "gpu_count", "ecc", "remap_failure", "fabric", "nvlink", "nvlink_errors", "pcie_width", "pcie_errors"),
    *("host_memory", "ib_port", "ib_rate", "ib_errors", "disk", "disk_writable", "nvme"),
)
MAX_LIMIT = 1e12  # of a threshold; as in the agent
MAX_PROBLEMS = 20  # in one refusal

Problem = tuple[str, reasons.Reason]  # the path of what is wrong, such as checks/1/level, and why


class ProfileInvalid(Exception):
    """A profile that is refused, with every problem in it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(f"{path or 'profile'}: {why}" for path, why in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class ProfileCheck:
    """One check of a profile. ``arguments``: ``level`` of dcgm, and limits in the units of ``agents/checks.md``.

    ``required``: the node passes only with a result of it; otherwise it may be skipped.
    """

    name: str
    arguments: Mapping[str, float] = field(default_factory=dict)
    required: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """The checks of a profile, and the names of results of probes."""

    checks: tuple[ProfileCheck, ...]
    probes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the agents' checks, in the order in which they run."""
        agents = (check.name for check in self.checks if check.name not in nccl.NAMES)
        return tuple(sorted(agents, key=lambda name: name == "dcgm"))

    @property
    def nccl_limits(self) -> dict[str, float | None]:
        """GB/s of bus bandwidth by NCCL test, in the order in which they run; None: the default."""
        found = {check.name: check.arguments.get(nccl.LIMIT) for check in self.checks}
        return {name: found[name] for name in nccl.NAMES if name in found}

    @property
    def level(self) -> int:
        """The level of dcgm, 1 to 4."""
        return next((int(check.arguments.get("level", 1)) for check in self.checks if check.name == "dcgm"), 1)

    @property
    def limits(self) -> dict[str, float]:
        """The other arguments of the agents' checks, as the agent takes them."""
        agents = (check for check in self.checks if check.name not in nccl.NAMES)
        return {key: value for check in agents for key, value in check.arguments.items() if key != "level"}

    @property
    def time_limit(self) -> timedelta:
        """The time within which a node's agent must answer."""
        return autopilot.time_limit(self.names, level=self.level)

    def to_json(self) -> dict[str, Any]:
        """The JSON that ``parse`` reads."""
        checks = [{"check": one.name, **one.arguments, "required": one.required} for one in self.checks]
        return {"checks": checks, "probes": list(self.probes)}


def without_nccl(profile: Profile) -> Profile:
    """The profile with the checks of agents only."""
    return replace(profile, checks=tuple(check for check in profile.checks if check.name not in nccl.NAMES))


def parse(document: object) -> Profile:
    """Reads a profile. Raises ProfileInvalid with the path of each problem."""
    problems = tuple(islice(_problems(document), MAX_PROBLEMS))
    if problems:
        raise ProfileInvalid(problems)
    assert isinstance(document, dict)
    return Profile(
        checks=tuple(_check(one) for one in document["checks"]), probes=tuple(dict.fromkeys(document.get("probes", ())))
    )


def _check(given: Mapping[str, Any]) -> ProfileCheck:
    name = given["check"]
    arguments = {key: given[key] for key in ARGUMENTS[name] if key in given}
    return ProfileCheck(name, MappingProxyType(arguments), required=given.get("required", True))


def _problems(document: object) -> Iterator[Problem]:
    if not isinstance(document, dict):
        yield "", reasons.of("not_an_object")
        return
    yield from ((short_text(key), reasons.of("unknown_field")) for key in document if key not in ("checks", "probes"))
    yield from _check_problems(document.get("checks"))
    probes = document.get("probes", [])
    if not isinstance(probes, list):
        yield "probes", reasons.of("profile_list_expected")
        return
    for place, name in enumerate(probes):
        if name not in PROBES:
            known = ", ".join(PROBES)
            yield f"probes/{place}", reasons.of("profile_probe_unknown", probe=short_repr(name), known=known)


def _check_problems(checks: object) -> Iterator[Problem]:
    if not isinstance(checks, list):
        yield "checks", reasons.of("profile_list_expected")
        return
    seen: set[str] = set()
    for place, given in enumerate(checks):
        path = f"checks/{place}"
        if not isinstance(given, dict):
            yield path, reasons.of("not_an_object")
            continue
        name = given.get("check")
        if not isinstance(name, str) or name not in ARGUMENTS:
            known = ", ".join(ARGUMENTS)
            yield f"{path}/check", reasons.of("profile_check_unknown", check=short_repr(name), known=known)
            continue
        if name in seen:
            yield f"{path}/check", reasons.of("profile_check_twice", check=name)
        seen.add(name)
        yield from ((f"{path}/{key}", why) for key, why in _argument_problems(name, given))
    if not any(isinstance(given, dict) and given.get("required", True) is True for given in checks):
        yield "checks", reasons.of("profile_requires_nothing")
    elif seen and seen <= set(nccl.NAMES):
        yield "checks", reasons.of("profile_only_nccl")


def _argument_problems(check: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in given.items():
        if key == "required":
            if not isinstance(value, bool):
                yield key, reasons.of("not_a_flag", value=short_repr(value))
        elif key in ARGUMENTS[check]:
            if (why := _refusal(key, value)) is not None:
                yield key, why
        elif key != "check":
            known = ", ".join((*ARGUMENTS[check], "required"))
            yield short_text(key), reasons.of("profile_argument_unknown", check=check, known=known)


def _refusal(key: str, value: object) -> reasons.Reason | None:
    """Why the value of an argument is refused; None if it is accepted."""
    if key == "level":
        least, most = autopilot.DCGM_LEVELS[0], autopilot.DCGM_LEVELS[-1]
        if type(value) is int and least <= value <= most:
            return None
        return reasons.of("number_out_of_range", least=least, most=most, value=short_repr(value))
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value < MAX_LIMIT
        and math.isfinite(value)
    ):
        return None
    return reasons.of("profile_limit_invalid", value=short_repr(value))


# gpupower and remapped are skipped on drivers and boards that do not report what they read.
_STATE = (ProfileCheck("remapped", required=False), ProfileCheck("gpupower", required=False))
# NCCL needs an image that is a setting of the cluster, and a second GPU or a second node.
_NCCL = ProfileCheck(nccl.NODE, required=False)
_NCCL_PAIR = ProfileCheck(nccl.PAIR, required=False)
_LINKS = ("gpu_count", "fabric", "nvlink", "pcie_width", "ib_port", "ib_rate", "disk_writable", "nvme")

LIGHT: Final = "light"  # under a minute: what the driver knows, a copy to each GPU, DCGM's quick tests
FULL: Final = "full"  # under ten minutes: also a benchmark of each GPU, DCGM's medium tests, an all-reduce
BURN_IN: Final = "burn-in"  # one to two hours: DCGM's longest tests, an all-reduce with another node
DEFAULTS: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        LIGHT: Profile((*_STATE, ProfileCheck("pciebw"), ProfileCheck("dcgm", {"level": 1})), _LINKS),
        FULL: Profile(
            (*_STATE, ProfileCheck("pciebw"), ProfileCheck("gpumem"), ProfileCheck("dcgm", {"level": 2}), _NCCL), _LINKS
        ),
        BURN_IN: Profile(
            (
                *(*_STATE, ProfileCheck("pciebw"), ProfileCheck("gpumem"), ProfileCheck("dcgm", {"level": 4})),
                *(_NCCL, _NCCL_PAIR),
            ),
            _LINKS,
        ),
    }
)
