"""Hypothesis strategies for any valid policy."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from kcover.actions import in_policies, validate
from kcover.faults import fault
from kcover.jobs import checkpoint_query
from kcover.policy import document, modes
from kcover.values import durations, limits

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
KEYS = st.sampled_from(("app", "env", "kcover.io/pool", "a.b/C_d"))
LABELS = st.dictionaries(KEYS, st.sampled_from(("", "demo", "true", "1", "x_Y.z")), max_size=3)
CODES = st.integers(0, 2**31 - 1).map(str)
WAITS = st.builds(timedelta, minutes=st.integers(1, 3650 * 24 * 60))
WAIT_TEXTS = st.one_of(st.just(""), WAITS.map(durations.render))
WORDS = st.from_regex(r"[a-z0-9_.-]{1,12}", fullmatch=True)


def _some(of: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(of, max_size=3, unique=True).map(tuple)


def _attributes(**known: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional=known)


TRUTHS = st.sampled_from(("true", "false"))
SENTENCES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=60)
_CHECKPOINTS = st.fixed_dictionaries(
    {"checkpointWait": WAIT_TEXTS, "checkpointQuery": st.just(checkpoint_query.EXAMPLE)},
    optional={"checkpointSource": st.just("prometheus")},
)
ATTRIBUTES: dict[str, st.SearchStrategy[dict[str, str]]] = {
    "cordon": st.just({}),
    "drain": _attributes(waittime=WAIT_TEXTS, checkpointWait=WAIT_TEXTS, kueueTogether=TRUTHS) | _CHECKPOINTS,
    "reboot": _attributes(waittime=WAIT_TEXTS, unCordon=TRUTHS),
    "enableWarmStandby": st.just({}),
    "unCordon": st.just({}),
    "taint": _attributes(key=KEYS, value=st.just("x-<code>"), effect=st.just("NoExecute")),
    "label": st.fixed_dictionaries({"key": st.just("app")}, optional={"value": st.just("<code>")}),
    "quarantineDevice": _attributes(
        effect=st.sampled_from(("NoSchedule", "NoExecute")), otherwise=st.sampled_from(("cordon", "hold"))
    ),
    "gpuReset": _attributes(unCordon=TRUTHS),
    "powerCycle": _attributes(unCordon=TRUTHS),
    "offline": st.fixed_dictionaries(
        {"url": st.just("https://x.example/y")}, optional={"waittime": WAIT_TEXTS, "unCordon": TRUTHS}
    ),
    "replace": st.just({}),
    "repair": _attributes(vendor=st.just("ACME"), queue=st.just("rma 2"), unCordon=TRUTHS),
    "restartJobs": st.just({}),
    "stopJobs": st.just({}),
    "notify": _attributes(channel=st.just("on-call"), message=SENTENCES),
    "webhook": st.fixed_dictionaries({"url": st.just("https://x.example/y")}, optional={"waittime": WAIT_TEXTS}),
    "runChecks": _attributes(checks=st.just("pciebw,dcgm")),
}
BESIDE_DEVICE = ("label", "notify", "webhook", "runChecks")  # that quarantineDevice does not exclude
LAST = ("offline", "replace", "repair")  # repairs of which a rule has at most one
REPAIRS = (
    *(("reboot",), ("gpuReset",), ("powerCycle",), ("reboot", "powerCycle")),  # KCE's first
    *(("reboot", last) for last in LAST),
)


@st.composite
def _actions(draw: Callable[..., Any], *, own: bool) -> tuple[document.Action, ...]:
    """Actions whose preconditions hold."""
    if own and draw(st.sampled_from((*REPAIRS, "device"))) == "device":
        beside = draw(st.lists(st.sampled_from(BESIDE_DEVICE), unique=True))
        listed = draw(st.permutations(("quarantineDevice", *beside)))
        return tuple(document.Action(name=name, attribute=draw(ATTRIBUTES[name])) for name in listed)
    asked = ["cordon", "drain", *draw(st.lists(st.sampled_from(sorted(ATTRIBUTES)), unique=True))]
    repairs = draw(st.sampled_from(REPAIRS if own else REPAIRS[:1]))
    moved = draw(st.sampled_from(("restartJobs", "stopJobs")))
    others = {"reboot", "gpuReset", "powerCycle", "restartJobs", "stopJobs", "quarantineDevice", *LAST}
    others -= {*repairs, moved}
    asked = [name for name in dict.fromkeys([*asked, *repairs]) if name not in others]
    names = [name for name in asked if own or not in_policies()[name].own]
    return tuple(document.Action(name=name, attribute=draw(ATTRIBUTES[name])) for name in draw(st.permutations(names)))


@st.composite
def _rule(draw: Callable[..., Any], index: int, *, own: bool) -> document.Rule:
    codes = draw(st.none() | st.lists(CODES, min_size=1, max_size=4).map(tuple))
    labels = draw(st.none() | LABELS)
    listed_actions = draw(_actions(own=own))
    more: dict[str, Any] = {}
    if own:
        sxids, checks = draw(_some(CODES)), draw(_some(WORDS))
        taken = {kind for kind, listed in (("xid", codes), ("sxid", sxids), ("check", checks)) if listed}
        free = [kind for kind in fault.KINDS if kind not in taken]
        drains = any(action.name == "drain" for action in listed_actions)
        verify, kinds = draw(st.booleans()), draw(_some(st.sampled_from(free)))
        more = {
            "sxids": sxids,
            "checks": checks,
            "kinds": kinds,
            "application_faults": draw(st.booleans()) if kinds else True,
            "minimum": draw(st.none() | st.builds(document.Minimum, count=st.integers(1, 1_000_000), within=WAITS)),
            "mode": draw(st.sampled_from(modes.RULE_MODES)),
            "budget": draw(
                st.none()
                | st.builds(limits.Limit, count=st.integers(1, 1_000_000))
                | st.builds(limits.Limit, percent=st.integers(1, 100))
            ),
            "cooldown": draw(st.none() | WAITS),
            "approval": draw(
                st.none() | st.builds(document.Approval, approvers=st.integers(1, 2), expires=st.none() | WAITS)
            ),
            "on_drain_timeout": draw(st.sampled_from(("", *document.DRAIN_TIMEOUTS) if drains else ("",))),
            "verify": verify,
            "verify_agent": draw(st.booleans()) if verify else True,
            "validate": draw(st.none() | st.sampled_from(validate.PROFILES)),
            "escalate": draw(st.none() | SENTENCES),
        }
        if document.Rule(index=0, priority=0, actions=listed_actions).uncordons:
            more["probation"] = draw(st.sampled_from((None, "auto", "1min", "6h", "1day12h", "30day")))
    return document.Rule(
        index=index,
        priority=draw(st.integers(0, 2**31 - 1)),
        codes=codes,
        operator="all" if labels is None else draw(st.sampled_from(("any", "all"))),
        labels=labels,
        actions=listed_actions,
        **more,
    )


@st.composite
def policies(draw: Callable[..., Any]) -> document.Policy | document.StandbyPolicy:
    """Any policy of either kind and version."""
    name, version = draw(NAMES), draw(st.sampled_from((document.KSYUN, document.KCOVER)))
    size = draw(st.integers(1, 3))
    if draw(st.integers(0, 4)) == 0:
        pairs = tuple(
            document.StandbyRule(index=index, origin=draw(LABELS), target=draw(LABELS)) for index in range(size)
        )
        return document.StandbyPolicy(name=name, api_version=version, matches=pairs)
    rules = tuple(draw(_rule(index, own=version == document.KCOVER)) for index in range(size))
    return document.Policy(name=name, api_version=version, rules=rules)
