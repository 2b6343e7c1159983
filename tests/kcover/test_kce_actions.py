"""KCE's "create rescue action": valid requests, and the error messages for invalid ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.plans import kce_actions

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def body(*actions: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": one, "waittime": "", "maps": []} if isinstance(one, str) else one for one in actions]
    return {"nodeName": "gpu-1", "xid": 79, "escalateTime": "", "actions": named, **more}


def steps(*actions: Any, **more: Any) -> list[str]:
    return [step.name for step in kce_actions.parse(body(*actions, **more), now=NOW).steps]


def test_the_steps_equal_those_of_a_rule_with_the_same_actions() -> None:
    assert steps("cordon") == ["cordon"]
    assert steps("drain") == ["cordon", "drain"]  # KCE: a drain cordons first
    assert steps("drain", "reboot") == ["cordon", "drain", "reboot", "ready", "verify"]
    assert steps("cordon", "drain", "reboot", "unCordon")[-1] == "uncordon"
    assert steps("drain", {"name": "reboot", "maps": [{"unCordon": "true"}]})[-1] == "uncordon"
    assert steps("drain", {"name": "reboot", "maps": [{"unCordon": "false", "why": "x"}]})[-1] == "verify"


def test_wait_times_of_drain_and_reboot() -> None:
    read = kce_actions.parse(
        body({"name": "drain", "waittime": "1h30min"}, {"name": "reboot", "waittime": "5min"}), now=NOW
    )
    args = {step.name: dict(step.args) for step in read.steps}
    assert (args["drain"]["seconds"], args["reboot"]) == (5400, {"wait_seconds": 300})


def test_the_cluster_says_what_follows_a_drain_that_ran_out_of_time() -> None:
    read = kce_actions.parse(body({"name": "drain", "waittime": "5min"}), now=NOW, on_drain_timeout="proceed")
    assert {step.name: dict(step.args) for step in read.steps}["drain"]["on_timeout"] == "proceed"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None),
        (None, None),
        ("30min", NOW + timedelta(minutes=30)),
        ("1day2h", NOW + timedelta(days=1, hours=2)),
        ("2026-11-21T08:00:01Z", NOW + timedelta(seconds=1)),
        ("2026-11-21T17:00:00+08:00", NOW + timedelta(hours=1)),
    ],
)
def test_escalate_time_is_a_duration_or_a_time(text: str | None, moment: datetime | None) -> None:
    assert kce_actions.parse(body("cordon", escalateTime=text), now=NOW).start_by == moment


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ([], "the body must be an object"),
        ("x", "the body must be an object"),
        (body("cordon", foo=1), "unknown key foo: known keys are nodeName, xid, escalateTime, actions"),
        (body("cordon", nodeName=""), "nodeName must be"),
        (body("cordon", nodeName="a b"), "nodeName must be"),
        (body("cordon", nodeName="a" * 254), "nodeName must be"),
        (body("cordon", nodeName=5), "nodeName must be"),
        (body("cordon", xid="79"), "xid must be a whole number"),
        (body("cordon", xid=True), "xid must be a whole number"),
        (body("cordon", xid=-1), "xid must be a whole number"),
        (body("cordon", xid=2**31), "xid must be a whole number"),
        (body("cordon", escalateTime=5), "escalateTime must be a string"),
        (body("cordon", escalateTime="5m"), "escalateTime: "),
        (body("cordon", escalateTime="2026-11-21T07:59:59Z"), "escalateTime is in the past"),
        (body("cordon", escalateTime="2026-11-21T08:00:00Z"), "escalateTime is in the past"),
        (body("cordon", escalateTime="2026-11-21T09:00:00"), "escalateTime needs a UTC offset"),
        (body("cordon", escalateTime="2026-13-21T09:00:00Z"), "escalateTime must be a duration such as"),
        (body(), "actions must be a list"),
        (body("cordon", actions={}), "actions must be a list"),
        (body(5), r"actions\[0\] must be an object"),
        (body("cordon", "explode"), r"actions\[1\].name must be one of cordon, drain"),
        (body("cordon", "cordon"), r"actions\[1\].name: cordon appears twice"),
        (body("cordon", "drain", "reboot", "unCordon", "enableWarmStandby", "cordon"), "at most 5"),
        (body({"name": "cordon", "time": "1h"}), r"actions\[0\]: unknown key time"),
        (body({"name": "cordon", "waittime": "5min"}), r'actions\[0\].waittime must be "": only drain and reboot'),
        (body({"name": "drain", "waittime": "5 min"}), r"actions\[0\].waittime: "),
        (body({"name": "drain", "waittime": 5}), r"actions\[0\].waittime must be a string"),
        (body({"name": "drain", "maps": "x"}), r"actions\[0\].maps must be a list"),
        (body({"name": "drain", "maps": [{}] * 21}), r"actions\[0\].maps must be a list of at most 20"),
        (body({"name": "drain", "maps": [{"a": 1}]}), r"actions\[0\].maps must contain"),
        (body({"name": "drain", "maps": [{"unCordon": "yes"}]}), r"actions\[0\].maps: unCordon must be"),
    ],
)
def test_an_invalid_parameter_is_named(asked: Any, says: str) -> None:
    with pytest.raises(kce_actions.ParameterError, match=says):
        kce_actions.parse(asked, now=NOW)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (["reboot"], "reboot needs drain"),
        (["cordon", "unCordon"], "unCordon needs reboot or gpuReset or powerCycle"),
        (["enableWarmStandby"], "enableWarmStandby needs cordon or drain or reboot"),
    ],
)
def test_preconditions_are_checked_after_the_parameters(actions: list[str], says: str) -> None:
    with pytest.raises(kce_actions.PreconditionError, match=says):
        kce_actions.parse(body(*actions), now=NOW)
    with pytest.raises(kce_actions.ParameterError):
        kce_actions.parse(body(*actions, xid="x"), now=NOW)
