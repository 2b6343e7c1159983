"""Reasons that can be said in any language: a code, what it speaks of, and one English sentence for each code.

A reason is kept and compared as data; ``str`` says it in English, ``say`` with the caller's translation of the
sentence. Strings and reasons among its parameters name things (a rule, a rescue, an end); whole numbers are measures,
and two reasons that differ in measures only are ``alike``: the same answer with newer figures.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Any, TypeAlias

Value: TypeAlias = "str | int | Reason"

TEXTS: Mapping[str, str] = {
    "text": "{text}",  # what an older version kept as a plain sentence
    # why no rule is asked
    "node_unknown": "the cluster {cluster} has no node {node}: its reports are kept, nothing is done to it",
    "node_without_gpus": "node {node} has no GPUs, and policies act on GPU workers only",
    "drill_recorded": "a program wrote this line (a drill), and this cluster only records drills",
    "left_to_external": "this cluster leaves every decision to an external system (decision_mode external)",
    # rules
    "no_policy": "no policy is in force",
    "rule_matches": "rule {rule} (priority {priority}) matches {kind} {code}",
    "rule_mismatch": "rule {rule} does not match: {why}",
    "code_and_labels_match": "code and labels match",
    "lists_xids": "it lists Xid codes, and this is a fault of kind {kind}",
    "lists_others": "it lists {listed}, not {code}",
    "names_others": "it names {named}, not {kind} {code}",
    "seen_too_seldom": "it wants {wanted} sightings within {within}, and there were {seen}",
    "means_xids": "it means Xid and SXid faults, not kind {kind}",
    "program_fault": "{kind} {code} is not a fault of the node, and only a rule that lists it matches",
    "not_catalogued": "{kind} {code} is in no catalogue, and only a rule that lists it matches",
    "no_label": "the node has none of {labels}",
    "not_all_labels": "the node has not all of {labels}",
    # what is weighed once a rule matches
    "excluded": "node {node} carries {label}=true: hands off",
    "paused": "everything is paused",
    "paused_because": "everything is paused: {why}",
    "rescue_open": "rescue {rescue} is open on this node, and a node has one rescue at a time",
    "left_to_people": "rescue {rescue} left this node to people: release it to let policies act again",
    "done_already": "rescue {rescue} did just this already, and the node is still isolated",
    "shadow": "shadow mode: this is what would have been done",
    "approve": "approve mode: a person must say yes first",
    "nothing_holds_back": "nothing holds it back",
    "approval_required": "the rule wants a person to say yes first",
    "reboots_repeat": "rescues rebooted this node, or reset a GPU of it, {rescues} times within {within}: a person"
    " must look at it",
    "inspection": "{reboots} reboots within {within} did not cure {kind} {code}: the hardware must be inspected",
    "expired": "it was last seen at {seen}, longer ago than {within}: what was held back is given up",
    # guards: what holds an act back, and what it passed
    "none_eligible": "the cluster {cluster} has no eligible node to count over: nothing is done",
    "overridden": "{user} overrode the guard {guard}: {why}",
    "not_excluded": "node {node} does not carry {label}=true",
    "maintenance": "maintenance ({scope}) until {until}",
    "maintenance_because": "maintenance ({scope}) until {until}: {why}",
    "no_maintenance": "no maintenance window holds here now",
    "storm_code": "storm: fault {value} was seen on {nodes} nodes within {within}, and {limit} have a common cause",
    "storm_job": "storm: {nodes} nodes of job {value} failed within {within}, and {limit} have a common cause",
    "storm_switch": "storm: {nodes} nodes on switch {value} failed within {within}, and {limit} have a common cause",
    "storm_agent_version": "storm: {nodes} nodes with agent {value} failed within {within}, and {limit} have a common"
    " cause",
    "no_storm": "no storm: within {within} no symptom was on more than {nodes} nodes, and {limit} would be one",
    "rate": "{nodes} of {eligible} nodes became faulty within {within}, and {limit} have a common cause: no {act} now",
    "rate_of_chance": "faulty nodes are few enough to be chance: {ten_minutes} within 10 min, {hour} within 1 h,"
    " {six_hours} within 6 h, of {eligible}",
    "breaker": "breaker tripped: {isolated} of {eligible} nodes were isolated within {within}, {limit} at most",
    "breaker_closed": "breaker: {isolated} of {eligible} nodes were isolated within {within}, {limit} at most",
    "budget": "no budget of {scope} left: {taken} of {eligible} nodes are isolated or in rescue, {limit} at most",
    "budget_left": "budget of {scope}: {taken} of {eligible} nodes are isolated or in rescue, {limit} at most",
    "floor": "pool {pool} has {healthy} healthy nodes of {eligible} and keeps at least {floor}",
    "above_floor": "floor: pool {pool} has {healthy} healthy nodes of {eligible} and keeps at least {floor}",
    "cooldown": "cooldown until {until}: the last rescue of this node ended at {ended}",
    "rule_cooldown": "cooldown until {until}: the last rescue of this node by rule {rule} ended at {ended}",
    "cooled_down": "cooldown: no rescue of this node ended within {within}",
    "rebooted_since": "node {node} has rebooted since this was seen, and it was not seen again",
    "boot_not_shown": "it was seen in boot {boot}, which the cluster has not shown: whether that boot is over is not"
    " known yet",
    "external_nothing": "{system} was asked and wants nothing done",
    "external_silent": "{system} was asked to decide and is silent: {why}",
    "plan_limit": "Exceed the maximum plans limit {{{limit}}}",  # KCE's words
    # approvals
    "approval_granted": "approved by {by}, until {until}",
    "approval_waits": "{missing} of {needed} approvals are missing; the question stands until {until}",
    "approval_expired": "not enough people said yes until {until}: the node stays as it is",
    "approval_void": "it was asked about {part} {asked}, and now it is {actual}: ask again",
    "approval_healed": "the fault is over: there is nothing left to approve",
    "rejected": "{by} said no",
    "rejected_because": "{by} said no: {why}",
    "vote_void": "the answer of {by} was about {part} {voted}, not {asked}, and does not count",
    "vote_of_requester": "{by} asked for it, and somebody else must approve it",
    "vote_early": "{by} answered at {at}, before it was asked: that does not count",
    "vote_late": "{by} answered at {at}, too late: that does not count",
    # standbys
    "standby_by_rule": "standby {standby}, at random of {free} free ones that rule {rule} allows",
    "standby_of_any": "standby {standby}, at random of {free} free ones: no rule found one",
    "standby_shortage": "none of {standbys} standbys is free: it goes on without one",
    "standby_not_ready": "standby {standby} is not Ready",
    "standby_unhealthy": "standby {standby} is not healthy",
    "standby_promised": "standby {standby} is promised to another node",
    # preflight
    "preflight_waiting": "{received} of {expected} reports are in",
    "preflight_expired": "only {received} of {expected} reports came within {within}, from {nodes}: no verdict on them",
    "preflight_abnormal": "{node} failed {checks}",
    "preflight_slow": "{node} failed in each of the {slots} slots that count",
    "preflight_suspects": "one of {nodes} is slow: two nodes cannot be told apart",
    "preflight_slots": "{node} ran {slots} of {expected} slots, too few to call it slow",
    "preflight_size": "{node} speaks of {size} nodes, not {before}: the {received} earlier reports are dropped",
    "preflight_again": "{node} reported again after the verdict: a new run begins",
}


def _fields(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(template) if name is not None)


FIELDS: Mapping[str, frozenset[str]] = {code: _fields(template) for code, template in TEXTS.items()}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, made by ``of``: ``code`` is in ``TEXTS``, ``params`` are the pairs that its sentence names."""

    code: str
    params: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return self.say(str)

    def say(self, translate: Callable[[str], str]) -> str:
        """The sentence in the language of ``translate`` (gettext for example), which gets the English template."""
        said = {name: value.say(translate) if isinstance(value, Reason) else value for name, value in self.params}
        return translate(TEXTS[self.code]).format_map(said)

    def to_json(self) -> dict[str, Any]:
        """``{"code", "params"}`` of plain JSON; a reason among the parameters has the same shape."""
        plain = {name: value.to_json() if isinstance(value, Reason) else value for name, value in self.params}
        return {"code": self.code, "params": plain}


def of(code: str, /, **params: Value) -> Reason:
    """The reason of that code. Raises KeyError for an unknown code, ValueError where the parameters are not those that
    its sentence names."""
    if FIELDS[code] != params.keys():
        raise ValueError(f"reason {code} speaks of {sorted(FIELDS[code])}, not of {sorted(params)}")
    return Reason(code, tuple(sorted(params.items())))


def from_json(data: object) -> Reason:
    """The reason that ``to_json`` made. Whatever else was kept (a plain sentence, a code of another version) becomes a
    ``text`` that says it as it is, because old records must stay readable."""
    match data:
        case {"code": str(code), "params": dict(params)} if FIELDS.get(code) == params.keys():
            return of(code, **{name: _value(value) for name, value in params.items()})
        case {"code": str(code), "params": dict(params)}:
            return of("text", text=" ".join([code, *(f"{name}={value}" for name, value in params.items())]))
    return of("text", text=str(data))


def _value(value: object) -> Value:
    return value if isinstance(value, str | int) else from_json(value)


def alike(some: Iterable[Reason], others: Iterable[Reason]) -> bool:
    """Whether both give the same reasons in the same order, figures apart."""
    return [_gist(one) for one in some] == [_gist(one) for one in others]


def _gist(reason: Reason) -> tuple[str, list[tuple[str, object]]]:
    named = [(name, value) for name, value in reason.params if not isinstance(value, int)]
    return reason.code, [(name, _gist(value) if isinstance(value, Reason) else value) for name, value in named]


def moment(at: datetime) -> str:
    """A moment as reasons name it: UTC, to the second. Raises ValueError for one without a zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at} has no zone")
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(time: timedelta) -> str:
    """A length of time as reasons name it, in the largest unit that it is a whole number of: 5 min, 7 d, 90 s."""
    seconds = int(time.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
