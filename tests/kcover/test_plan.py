"""Plans: the fixed order of steps, their arguments in seconds, their hash."""

import itertools
from typing import Any

import pytest

from kcover.jobs import checkpoint_query
from kcover.plans import plan
from kcover.policy import document
from tests.proof_verifier import verifier

Step = plan.PlannedStep
CORDON, READY, UNCORDON = Step(name="cordon"), Step(name="ready"), Step(name="uncordon")
DRAIN = Step(name="drain", args={"seconds": 600, "on_timeout": "hold"})
CYCLE = Step(name="power_cycle")
OFFLINE = Step(name="offline", args={"url": "https://x.example/y", "wait_seconds": 7 * 86400})
REBOOT, VERIFY = Step(name="reboot"), Step(name="verify", args={"agent": True})


def of(*asked: str | tuple[str, dict[str, str]], **fields: Any) -> tuple[Step, ...]:
    actions = tuple(
        document.Action(name=one) if isinstance(one, str) else document.Action(name=one[0], attribute=one[1])
        for one in asked
    )
    return plan.of_rule(document.Rule(index=0, priority=0, actions=actions, **fields), code="62")


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        (("cordon",), (CORDON,)),
        (("drain",), (CORDON, DRAIN)),
        (("cordon", "drain"), (CORDON, DRAIN)),
        (("drain", "reboot"), (CORDON, DRAIN, REBOOT, READY, VERIFY)),
        (("reboot",), (CORDON, REBOOT, READY, VERIFY)),
        (("drain", "powerCycle", "reboot"), (CORDON, DRAIN, REBOOT, CYCLE, READY, VERIFY)),
        (("repair",), (CORDON, DRAIN, Step(name="repair"), VERIFY)),
        (
            (("offline", {"url": "https://x.example/y"}), "reboot"),
            (CORDON, DRAIN, REBOOT, OFFLINE, READY, VERIFY),
        ),
        (("drain", "reboot", "unCordon"), (CORDON, DRAIN, REBOOT, READY, VERIFY, UNCORDON)),
        (
            (("quarantineDevice", {"otherwise": "hold"}), ("label", {"key": "a"})),
            (
                Step(name="label", args={"key": "a", "value": "true"}),
                Step(name="quarantine_device", args={"value": "62", "effect": "NoSchedule", "otherwise": "hold"}),
            ),
        ),
        ((), ()),
    ],
)
def test_the_steps_of_a_rule(asked: tuple[str, ...], steps: tuple[Step, ...]) -> None:
    assert of(*asked) == steps


def test_the_order_is_fixed_whatever_order_the_rule_names() -> None:
    names = ("taint", "cordon", "drain", ("reboot", {"unCordon": "true"}))
    expected = ["cordon", "taint", "drain", "reboot", "ready", "verify", "uncordon", "escalate"]
    for order in itertools.permutations(names):
        assert [step.name for step in of(*order, escalate="call")] == expected


@pytest.mark.parametrize(
    ("written", "seconds"), [("", 600), ("20min", 1200), ("1h", 3600), ("1day1min", 86_460), ("0min", 0)]
)
def test_the_wait_time_of_a_drain(written: str, seconds: int) -> None:
    assert of(("drain", {"waittime": written}))[1].args == {"seconds": seconds, "on_timeout": "hold"}


@pytest.mark.parametrize("end", document.DRAIN_TIMEOUTS)
def test_the_end_of_a_drain(end: str) -> None:
    assert of("drain", on_drain_timeout=end)[1].args == {"seconds": 600, "on_timeout": end}


@pytest.mark.parametrize("end", document.DRAIN_TIMEOUTS)
def test_the_cluster_says_the_end_of_a_drain_for_rules_that_do_not(end: str) -> None:
    drains = (document.Action(name="drain"),)
    silent, hold = (document.Rule(index=0, priority=0, actions=drains, on_drain_timeout=said) for said in ("", "hold"))
    assert plan.of_rule(silent, code="62", on_drain_timeout=end)[1].args["on_timeout"] == end
    assert plan.of_rule(hold, code="62", on_drain_timeout=end)[1].args["on_timeout"] == "hold"


@pytest.mark.parametrize(
    ("attribute", "args"), [({}, {}), ({"waittime": ""}, {}), ({"waittime": "2h"}, {"wait_seconds": 7200})]
)
def test_the_wait_time_of_a_reboot(attribute: dict[str, str], args: dict[str, int]) -> None:
    assert of("drain", ("reboot", attribute))[2] == Step(name="reboot", args=args)


@pytest.mark.parametrize(("written", "seconds"), [("30min", 1800), ("", None)])
def test_every_step_that_takes_work_away_may_wait_for_a_checkpoint(written: str, seconds: int | None) -> None:
    wait = {} if seconds is None else {"checkpoint_seconds": seconds}
    steps = {step.name: step.args for step in of("restartJobs", ("drain", {"checkpointWait": written}), "reboot")}
    assert steps["restart_jobs"] == wait
    assert steps["drain"] == {"seconds": 600, "on_timeout": "hold", **wait}
    assert steps["reboot"] == {}


def test_a_query_for_checkpoints_is_an_argument_of_every_step_that_waits() -> None:
    asked = {"checkpointQuery": checkpoint_query.EXAMPLE, "checkpointSource": "thanos"}
    args = {"checkpoint_query": checkpoint_query.EXAMPLE, "checkpoint_source": "thanos", "checkpoint_seconds": 60}
    steps = {step.name: step.args for step in of("stopJobs", ("drain", {"checkpointWait": "1min", **asked}))}
    assert steps["stop_jobs"] == args
    assert steps["drain"] == {"seconds": 600, "on_timeout": "hold", **args}
    unused = {step.name: step.args for step in of("stopJobs", ("drain", {"checkpointWait": "", **asked}))}
    assert unused["stop_jobs"] == {}


def test_every_step_has_its_place() -> None:
    everything = (
        ("webhook", {"url": "https://x.example"}),
        ("runChecks", {}),
        "notify",
        "restartJobs",
        ("label", {"key": "a"}),
        "enableWarmStandby",
        "taint",
        "drain",
    )
    before = ["cordon", "taint", "label", "notify", "standby", "restart_jobs", "drain", "webhook"]
    for repair, steps in ((("reboot",), ["reboot", "ready"]), (("gpuReset",), ["reset"])):
        names = [step.name for step in of(*everything, *repair, "unCordon", validate="auto", escalate="call")]
        assert names == [*before, *steps, "run_checks", "verify", "validate", "uncordon", "escalate"]


@pytest.mark.parametrize(
    ("asked", "step"),
    [
        (("label", {"key": "a/b"}), Step(name="label", args={"key": "a/b", "value": "true"})),
        (("label", {"key": "a", "value": "xid-<code>"}), Step(name="label", args={"key": "a", "value": "xid-62"})),
        ("notify", Step(name="notify", args={})),
        (
            ("notify", {"channel": "on-call", "message": "Xid <code>!"}),
            Step(name="notify", args={"channel": "on-call", "message": "Xid 62!"}),
        ),
        (("webhook", {"url": "https://x"}), Step(name="webhook", args={"url": "https://x"})),
        (
            ("webhook", {"url": "https://x", "waittime": "2h"}),
            Step(name="webhook", args={"url": "https://x", "wait_seconds": 7200}),
        ),
        ("runChecks", Step(name="run_checks", args={})),
        (("runChecks", {"checks": "pciebw,dcgm"}), Step(name="run_checks", args={"checks": ["pciebw", "dcgm"]})),
        ("enableWarmStandby", Step(name="standby")),
        ("restartJobs", Step(name="restart_jobs")),
        ("stopJobs", Step(name="stop_jobs")),
    ],
)
def test_each_action_of_a_rule_gives_its_step(asked: str | tuple[str, dict[str, str]], step: Step) -> None:
    assert of(asked) == (step,)


@pytest.mark.parametrize(
    ("code", "value"), [("62", "x-62"), ("remapped.", "x-remapped"), ("y" * 64, "x-" + "y" * 61), ("_", "x")]
)
def test_a_code_in_a_label_is_cut_to_the_length_that_kubernetes_accepts(code: str, value: str) -> None:
    actions = (document.Action(name="label", attribute={"key": "a", "value": "x-<code>"}),)
    [step] = plan.of_rule(document.Rule(index=0, priority=0, actions=actions), code=code)
    assert step.args["value"] == value


def test_a_reset_is_verified_like_a_reboot() -> None:
    assert of("drain", "gpuReset", "unCordon") == (CORDON, DRAIN, Step(name="reset"), VERIFY, UNCORDON)
    assert of("drain", ("gpuReset", {"unCordon": "true"}))[-1] == UNCORDON


def test_a_reboot_is_always_verified() -> None:
    assert of("drain", "reboot", verify=False)[4] == VERIFY
    assert of("drain", "reboot", verify_agent=False)[4] == Step(name="verify", args={"agent": False})


def test_a_rule_without_a_reboot_is_verified_on_demand_and_once() -> None:
    assert of("cordon", verify=True) == (CORDON, VERIFY)
    assert of("cordon", verify=True, verify_agent=False) == (CORDON, Step(name="verify", args={"agent": False}))
    assert [step.name for step in of("drain", "reboot", verify=True)].count("verify") == 1


@pytest.mark.parametrize("profile", ["light", "auto"])
def test_a_validation_follows_the_verification(profile: str) -> None:
    validated = Step(name="validate", args={"profile": profile})
    assert of("cordon", "unCordon", validate=profile) == (CORDON, VERIFY, validated, UNCORDON)
    assert of("drain", "reboot", validate=profile)[-2:] == (VERIFY, validated)


def test_calling_a_person_comes_last() -> None:
    assert of("cordon", escalate="call") == (CORDON, Step(name="escalate", args={"message": "call"}))
    assert of(escalate="call") == (Step(name="escalate", args={"message": "call"}),)


@pytest.mark.parametrize(
    ("attribute", "args"),
    [
        ({}, {"key": "kcover.io/unhealthy", "value": "62", "effect": "NoSchedule"}),
        (
            {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoExecute"},
            {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoExecute"},
        ),
        ({"value": "xid-<code>.<code>"}, {"key": "kcover.io/unhealthy", "value": "xid-62.62", "effect": "NoSchedule"}),
    ],
)
def test_a_taint_carries_the_code(attribute: dict[str, str], args: dict[str, str]) -> None:
    assert of(("taint", attribute)) == (Step(name="taint", args=args),)


@pytest.mark.parametrize(
    ("verb", "steps"),
    [
        ("cordon", (CORDON,)),
        ("uncordon", (Step(name="uncordon", args={"foreign": True}),)),
        ("drain", (CORDON, DRAIN)),
        ("reboot", (CORDON, DRAIN, REBOOT, READY, VERIFY, UNCORDON)),
        ("release", (Step(name="release"),)),
        ("exclude", (Step(name="exclude"),)),
        ("end_exclusion", (Step(name="end_exclusion"),)),
    ],
)
def test_the_plans_of_buttons(verb: str, steps: tuple[Step, ...]) -> None:
    assert plan.manual(verb) == steps


def test_a_program_does_not_lift_a_foreign_cordon() -> None:
    assert plan.manual("uncordon", by_person=False) == (UNCORDON,)


def test_an_unknown_button_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="unknown action 'explode'; use one of cordon, uncordon, drain, reboot, offline, release"
    ):
        plan.manual("explode")


def test_the_hash_is_short_stable_and_of_content_only() -> None:
    steps = (CORDON, DRAIN)
    assert plan.digest(steps) == plan.digest(list(steps)) == "51f3e4ec57faadce"
    turned = Step(name="drain", args={"on_timeout": "hold", "seconds": 600})
    assert plan.digest((CORDON, turned)) == plan.digest(steps)


def test_different_plans_have_different_hashes() -> None:
    plans = [
        (),
        (CORDON,),
        (DRAIN,),
        (CORDON, DRAIN),
        (DRAIN, CORDON),
        (CORDON, CORDON),
        (Step(name="drain", args={"seconds": 601, "on_timeout": "hold"}),),
        (Step(name="cordon", args={"seconds": 600}),),
    ]
    assert len({plan.digest(one) for one in plans}) == len(plans)


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (("cordon", "drain"), 1),
        (("cordon",), None),
        (("cordon", "taint", "notify"), None),
        ((("taint", {"key": "team/faulty"}),), None),
        ((("taint", {"effect": "NoExecute"}),), 0),
        ((("taint", {"key": "node.kubernetes.io/out-of-service"}), "cordon"), 1),
        ((("taint", {"key": "sub.node.k8s.io/a"}),), 0),
        ((("taint", {"key": "mykubernetes.io/a"}),), None),
        ((("taint", {"key": "kubernetes.io"}),), None),
        ((("label", {"key": "nvidia.com/mig.config"}), "cordon", "drain"), 1),
        ((("label", {"key": "a"}),), 0),
        (("cordon", "notify", ("webhook", {"url": "https://x.example/"})), 2),
        (("quarantineDevice",), None),
        ((("quarantineDevice", {"effect": "NoExecute"}),), 0),
    ],
)
def test_approve_mode_asks_before_the_first_step_that_does_more_than_isolate_and_tell(
    asked: tuple[str | tuple[str, dict[str, str]], ...], first: int | None
) -> None:
    steps = of(*asked)
    assert plan.first_to_approve(steps) == first
    by_proof = [verifier.only_isolates({"name": step.name, "args": dict(step.args)}) for step in steps]
    assert next((index for index, harmless in enumerate(by_proof) if not harmless), None) == first
