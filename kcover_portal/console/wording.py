"""Reasons in the reader's language.

``makemessages`` finds only what is marked in the source, so the kernel's sentences are repeated here, marked; a test
holds this list against the kernel's table.
"""

from collections.abc import Iterable

from django.utils.translation import gettext, gettext_noop

from kcover import reasons

SENTENCES = (
    gettext_noop("the cluster {cluster} has no node {node}: its reports are kept, nothing is done to it"),
    gettext_noop("node {node} has no GPUs, and policies act on GPU workers only"),
    gettext_noop("a program wrote this line (a drill), and this cluster only records drills"),
    gettext_noop("this cluster leaves every decision to an external system (decision_mode external)"),
    gettext_noop("no policy is in force"),
    gettext_noop("rule {rule} (priority {priority}) matches {kind} {code}"),
    gettext_noop("rule {rule} does not match: {why}"),
    gettext_noop("code and labels match"),
    gettext_noop("it lists Xid codes, and this is a fault of kind {kind}"),
    gettext_noop("it lists {listed}, not {code}"),
    gettext_noop("it names {named}, not {kind} {code}"),
    gettext_noop("it wants {wanted} sightings within {within}, and there were {seen}"),
    gettext_noop("it means Xid and SXid faults, not kind {kind}"),
    gettext_noop("{kind} {code} is not a fault of the node, and only a rule that lists it matches"),
    gettext_noop("{kind} {code} is in no catalogue, and only a rule that lists it matches"),
    gettext_noop("the node has none of {labels}"),
    gettext_noop("the node has not all of {labels}"),
    gettext_noop("node {node} carries {label}=true: hands off"),
    gettext_noop("everything is paused"),
    gettext_noop("everything is paused: {why}"),
    gettext_noop("rescue {rescue} is open on this node, and a node has one rescue at a time"),
    gettext_noop("rescue {rescue} left this node to people: release it to let policies act again"),
    gettext_noop("rescue {rescue} did just this already, and the node is still isolated"),
    gettext_noop("shadow mode: this is what would have been done"),
    gettext_noop("approve mode: a person must say yes first"),
    gettext_noop("nothing holds it back"),
    gettext_noop("the rule wants a person to say yes first"),
    gettext_noop(
        "rescues rebooted this node, or reset a GPU of it, {rescues} times within {within}: a person must look at it"
    ),
    gettext_noop("{reboots} reboots within {within} did not cure {kind} {code}: the hardware must be inspected"),
    gettext_noop("it was last seen at {seen}, longer ago than {within}: what was held back is given up"),
    gettext_noop("the cluster {cluster} has no eligible node to count over: nothing is done"),
    gettext_noop("{user} overrode the guard {guard}: {why}"),
    gettext_noop("node {node} does not carry {label}=true"),
    gettext_noop("maintenance ({scope}) until {until}"),
    gettext_noop("maintenance ({scope}) until {until}: {why}"),
    gettext_noop("no maintenance window holds here now"),
    gettext_noop("storm: fault {value} was seen on {nodes} nodes within {within}, and {limit} have a common cause"),
    gettext_noop("storm: {nodes} nodes of job {value} failed within {within}, and {limit} have a common cause"),
    gettext_noop("storm: {nodes} nodes on switch {value} failed within {within}, and {limit} have a common cause"),
    gettext_noop("storm: {nodes} nodes with agent {value} failed within {within}, and {limit} have a common cause"),
    gettext_noop("no storm: within {within} no symptom was on more than {nodes} nodes, and {limit} would be one"),
    gettext_noop(
        "{nodes} of {eligible} nodes became faulty within {within}, and {limit} have a common cause: no {act} now"
    ),
    gettext_noop(
        "faulty nodes are few enough to be chance: "
        "{ten_minutes} within 10 min, {hour} within 1 h, {six_hours} within 6 h, of {eligible}"
    ),
    gettext_noop("breaker tripped: {isolated} of {eligible} nodes were isolated within {within}, {limit} at most"),
    gettext_noop("breaker: {isolated} of {eligible} nodes were isolated within {within}, {limit} at most"),
    gettext_noop("no budget of {scope} left: {taken} of {eligible} nodes are isolated or in rescue, {limit} at most"),
    gettext_noop("budget of {scope}: {taken} of {eligible} nodes are isolated or in rescue, {limit} at most"),
    gettext_noop("pool {pool} has {healthy} healthy nodes of {eligible} and keeps at least {floor}"),
    gettext_noop("floor: pool {pool} has {healthy} healthy nodes of {eligible} and keeps at least {floor}"),
    gettext_noop("cooldown until {until}: the last rescue of this node ended at {ended}"),
    gettext_noop("cooldown until {until}: the last rescue of this node by rule {rule} ended at {ended}"),
    gettext_noop("cooldown: no rescue of this node ended within {within}"),
    gettext_noop("node {node} has rebooted since this was seen, and it was not seen again"),
    gettext_noop(
        "it was seen in boot {boot}, which the cluster has not shown: whether that boot is over is not known yet"
    ),
    gettext_noop("{system} was asked and wants nothing done"),
    gettext_noop("{system} was asked to decide and is silent: {why}"),
    gettext_noop("Exceed the maximum plans limit {{{limit}}}"),
    gettext_noop("approved by {by}, until {until}"),
    gettext_noop("{missing} of {needed} approvals are missing; the question stands until {until}"),
    gettext_noop("not enough people said yes until {until}: the node stays as it is"),
    gettext_noop("it was asked about {part} {asked}, and now it is {actual}: ask again"),
    gettext_noop("the fault is over: there is nothing left to approve"),
    gettext_noop("{by} said no"),
    gettext_noop("{by} said no: {why}"),
    gettext_noop("the answer of {by} was about {part} {voted}, not {asked}, and does not count"),
    gettext_noop("{by} asked for it, and somebody else must approve it"),
    gettext_noop("{by} answered at {at}, before it was asked: that does not count"),
    gettext_noop("{by} answered at {at}, too late: that does not count"),
    gettext_noop("standby {standby}, at random of {free} free ones that rule {rule} allows"),
    gettext_noop("standby {standby}, at random of {free} free ones: no rule found one"),
    gettext_noop("none of {standbys} standbys is free: it goes on without one"),
    gettext_noop("standby {standby} is not Ready"),
    gettext_noop("standby {standby} is not healthy"),
    gettext_noop("standby {standby} is promised to another node"),
    gettext_noop("{received} of {expected} reports are in"),
    gettext_noop("only {received} of {expected} reports came within {within}, from {nodes}: no verdict on them"),
    gettext_noop("{node} failed {checks}"),
    gettext_noop("{node} failed in each of the {slots} slots that count"),
    gettext_noop("one of {nodes} is slow: two nodes cannot be told apart"),
    gettext_noop("{node} ran {slots} of {expected} slots, too few to call it slow"),
    gettext_noop("{node} speaks of {size} nodes, not {before}: the {received} earlier reports are dropped"),
    gettext_noop("{node} reported again after the verdict: a new run begins"),
)


def say(reason: reasons.Reason) -> str:
    """One reason in the reader's language."""
    return reason.say(gettext)


def sentence(weighed: Iterable[reasons.Reason]) -> str:
    """Several reasons in one line."""
    return "; ".join(say(reason) for reason in weighed)
