"""Documents of policies for tests, and the problems that parsing them finds."""

from typing import Any

import pytest

from kcover.policy import document

RULE = ("spec", "rules", 0)
KNOWN = "cordon, drain, reboot, enableWarmStandby, unCordon"
OWN = (
    "taint, label, quarantineDevice, gpuReset, powerCycle, offline, replace, repair, restartJobs, stopJobs, notify, "
    "webhook, runChecks"
)


def policy(*rules: Any, api: str = document.KCOVER, **changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": api,
        "kind": "RescuePolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": list(rules) or [{}]},
    }
    return {**whole, **changes}


def rule(api: str = document.KCOVER, **fields: Any) -> document.Rule:
    return document.read(policy(fields, api=api)).rules[0]


def problems(content: object) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(document.PolicyInvalid) as caught:
        document.read(content)
    assert str(caught.value) == "; ".join(f"{'.'.join(map(str, p.path))}: {p.message}" for p in caught.value.problems)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def rule_problems(api: str = document.KCOVER, **fields: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Problems of one rule, with paths from the rule on."""
    found = problems(policy(fields, api=api))
    assert all(path[:3] == RULE for path, _ in found)
    return [(path[3:], message) for path, message in found]


def rule_reasons(api: str = document.KCOVER, **fields: Any) -> list[document.Problem]:
    """Problems of one rule, as they are."""
    with pytest.raises(document.PolicyInvalid) as caught:
        document.read(policy(fields, api=api))
    return caught.value.problems


def actions(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def standby(*matches: Any, api: str = document.KSYUN, **changes: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": api,
        "kind": "WarmStandbyPolicy",
        "metadata": {"name": "s"},
        "spec": {"matches": list(matches)},
    }
    return {**whole, **changes}
