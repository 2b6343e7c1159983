"""Validation profiles: what the built-in ones ask for, what agents can really do, and what is refused where."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agents import config, setup
from kcover.checks import autopilot
from kcover.validation import nccl, profiles

DCGM = {"check": "dcgm", "level": 2}


def problems(document: object) -> list[tuple[str, str]]:
    with pytest.raises(profiles.ProfileInvalid) as refused:
        profiles.parse(document)
    return [(path, why.code) for path, why in refused.value.problems]


@pytest.mark.parametrize("name", profiles.DEFAULTS)
def test_a_built_in_profile_survives_its_json(name: str) -> None:
    profile = profiles.DEFAULTS[name]
    assert profiles.parse(profile.to_json()) == profile
    assert any(check.required for check in profile.checks)
    assert set(profile.probes) <= set(profiles.PROBES)


def test_the_built_in_profiles_are_deeper_and_deeper() -> None:
    light, full, burn_in = profiles.DEFAULTS.values()
    assert (light.level, full.level, burn_in.level) == (1, 2, 4)
    assert set(light.names) < set(full.names) == set(burn_in.names)
    assert [list(one.nccl_limits) for one in (light, full, burn_in)] == [[], ["nccl"], ["nccl", "nccl_pair"]]
    assert not any(autopilot.is_invasive(name, level=light.level) for name in light.names)
    assert timedelta() < light.time_limit < full.time_limit < burn_in.time_limit


def test_agents_have_every_check_and_probe() -> None:
    of_agents = profiles.ARGUMENTS.keys() - set(nccl.NAMES)
    assert of_agents <= setup.check_runner(config.Config(node="n")).checks.keys()
    assert of_agents <= autopilot.CHECKS.keys()
    source = "".join(path.read_text(encoding="utf-8") for path in Path(setup.__file__).parent.rglob("probes/**/*.py"))
    assert [name for name in profiles.PROBES if f'"{name}"' not in source] == []


def test_dcgm_runs_last_and_its_level_is_not_a_limit() -> None:
    profile = profiles.parse({"checks": [DCGM, {"check": "pciebw", "threshold": 20}], "probes": ["ecc", "ecc"]})
    assert (profile.names, profile.level, profile.limits) == (("pciebw", "dcgm"), 2, {"threshold": 20})
    assert profile.probes == ("ecc",)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (None, [("", "not_an_object")]),
        ({}, [("checks", "profile_list_expected")]),
        ({"checks": []}, [("checks", "profile_requires_nothing")]),
        ({"checks": [DCGM], "probes": {}}, [("probes", "profile_list_expected")]),
        ({"checks": [DCGM], "more": 1}, [("more", "unknown_field")]),
        ({"checks": [DCGM], "probes": ["nvlink", "x", []]}, [(f"probes/{n}", "profile_probe_unknown") for n in (1, 2)]),
        ({"checks": [DCGM, 7]}, [("checks/1", "not_an_object")]),
        ({"checks": [DCGM, {"check": "ping"}]}, [("checks/1/check", "profile_check_unknown")]),
        ({"checks": [DCGM, {}]}, [("checks/1/check", "profile_check_unknown")]),
        ({"checks": [DCGM, {"check": []}]}, [("checks/1/check", "profile_check_unknown")]),
        ({"checks": [DCGM, DCGM]}, [("checks/1/check", "profile_check_twice")]),
        ({"checks": [{**DCGM, "threshold": 1}]}, [("checks/0/threshold", "profile_argument_unknown")]),
        ({"checks": [{**DCGM, "required": False}]}, [("checks", "profile_requires_nothing")]),
        ({"checks": [{"check": "nccl", "busbw": 1}, {"check": "nccl_pair"}]}, [("checks", "profile_only_nccl")]),
        ({"checks": [DCGM, {"check": "nccl", "level": 1}]}, [("checks/1/level", "profile_argument_unknown")]),
        ({"checks": [DCGM, {"check": "nccl", "busbw": 0}]}, [("checks/1/busbw", "profile_limit_invalid")]),
        ({"checks": [DCGM, {"check": "gpumem", "required": 1}]}, [("checks/1/required", "not_a_flag")]),
        *(
            ({"checks": [{"check": "dcgm", "level": level}]}, [("checks/0/level", "number_out_of_range")])
            for level in (0, 5, 2.0, "2", True, None)
        ),
        *(
            ({"checks": [{"check": "gpumem", "dgemm": limit}]}, [("checks/0/dgemm", "profile_limit_invalid")])
            for limit in (0, -1, 1e12, 10**400, float("nan"), "9", True, None)
        ),
    ],
)
def test_an_invalid_profile_is_refused_by_path(document: Any, found: list[tuple[str, str]]) -> None:
    assert problems(document) == found


def test_a_refusal_is_short_whatever_was_sent() -> None:
    found = problems({"checks": [{"check": "x" * 10_000}] * 10_000, "y" * 10_000: 1})
    assert len(found) == profiles.MAX_PROBLEMS
    assert max(len(path) for path, _ in found) < 200
