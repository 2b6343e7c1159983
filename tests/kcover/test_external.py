"""KCE's "create rescue action": what a decision system may write, and what it is told otherwise."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover import external

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def body(*actions: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": one, "waittime": "", "maps": []} if isinstance(one, str) else one for one in actions]
    return {"nodeName": "gpu-1", "xid": 79, "escalateTime": "", "actions": named, **more}


def steps(*actions: Any, **more: Any) -> list[str]:
    return [step.name for step in external.read(body(*actions, **more), now=NOW).steps]


def test_the_steps_are_those_of_a_rule_with_these_actions() -> None:
    assert steps("cordon") == ["cordon"]
    assert steps("drain") == ["cordon", "drain"]  # KCE: a drain cordons first
    assert steps("drain", "reboot") == ["cordon", "drain", "reboot", "ready", "verify"]
    assert steps("cordon", "drain", "reboot", "unCordon")[-1] == "uncordon"
    assert steps("drain", {"name": "reboot", "maps": [{"unCordon": "true"}]})[-1] == "uncordon"
    assert steps("drain", {"name": "reboot", "maps": [{"unCordon": "false", "why": "x"}]})[-1] == "verify"


def test_waits_are_the_drains_and_the_reboots() -> None:
    read = external.read(
        body({"name": "drain", "waittime": "1h30min"}, {"name": "reboot", "waittime": "5min"}), now=NOW
    )
    args = {step.name: dict(step.args) for step in read.steps}
    assert (args["drain"]["seconds"], args["reboot"]) == (5400, {"wait_seconds": 300})


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
def test_a_time_is_a_wait_or_a_moment(text: str | None, moment: datetime | None) -> None:
    assert external.read(body("cordon", escalateTime=text), now=NOW).start_by == moment


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ([], "the body must be an object"),
        ("x", "the body must be an object"),
        (body("cordon", foo=1), "foo is unknown: there are nodeName, xid, escalateTime, actions"),
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
        (body("cordon", escalateTime="2026-11-21T07:59:59Z"), "escalateTime is over already"),
        (body("cordon", escalateTime="2026-11-21T08:00:00Z"), "escalateTime is over already"),
        (body("cordon", escalateTime="2026-11-21T09:00:00"), "escalateTime must say its offset"),
        (body("cordon", escalateTime="2026-13-21T09:00:00Z"), "escalateTime must be a wait such as"),
        (body(), "actions must be a list"),
        (body("cordon", actions={}), "actions must be a list"),
        (body(5), r"actions\[0\] must be an object"),
        (body("cordon", "explode"), r"actions\[1\].name must be one of cordon, drain"),
        (body("cordon", "cordon"), r"actions\[1\].name: cordon is named twice"),
        (body("cordon", "drain", "reboot", "unCordon", "enableWarmStandby", "cordon"), "at most 5"),
        (body({"name": "cordon", "time": "1h"}), r"actions\[0\].time is unknown"),
        (body({"name": "cordon", "waittime": "5min"}), r'actions\[0\].waittime must be "": only drain and reboot'),
        (body({"name": "drain", "waittime": "5 min"}), r"actions\[0\].waittime: "),
        (body({"name": "drain", "waittime": 5}), r"actions\[0\].waittime must be a string"),
        (body({"name": "drain", "maps": "x"}), r"actions\[0\].maps must be a list"),
        (body({"name": "drain", "maps": [{}] * 21}), r"actions\[0\].maps must be a list of at most 20"),
        (body({"name": "drain", "maps": [{"a": 1}]}), r"actions\[0\].maps must hold"),
        (body({"name": "drain", "maps": [{"unCordon": "yes"}]}), r"actions\[0\].maps: unCordon must be"),
    ],
)
def test_a_wrong_parameter_is_named(asked: Any, says: str) -> None:
    with pytest.raises(external.ParameterError, match=says):
        external.read(asked, now=NOW)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (["reboot"], "reboot needs drain"),
        (["cordon", "unCordon"], "unCordon needs reboot or gpuReset"),
        (["enableWarmStandby"], "enableWarmStandby needs cordon or drain or reboot"),
    ],
)
def test_actions_that_do_not_fit_together_are_refused_after_the_parameters(actions: list[str], says: str) -> None:
    with pytest.raises(external.PreconditionError, match=says):
        external.read(body(*actions), now=NOW)
    with pytest.raises(external.ParameterError):
        external.read(body(*actions, xid="x"), now=NOW)
