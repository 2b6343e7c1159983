"""The walk-throughs into whose calls failures are injected, and their ends without a failure."""

from collections.abc import Iterable
from dataclasses import dataclass

OTHER = "<other system>"  # its address, in the policies
POLICIES = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: reboot, attribute: {unCordon: "true"}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: taint}
spec:
  rules:
    - priority: 10
      errorCode: ["79"]
      actions:
        - {name: taint, attribute: {key: trainy.konduktor.ai/faulty, value: "true", effect: NoSchedule}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: device}
spec:
  rules:
    - {priority: 10, errorCode: ["123"], actions: [{name: quarantineDevice}]}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: mend}
spec:
  rules:
    - priority: 10
      errorCode: ["119"]
      validate: light
      actions:
        - name: cordon
        - {name: label, attribute: {key: example.com/health, value: "xid-<code>"}}
        - name: enableWarmStandby
        - name: restartJobs
        - {name: drain, attribute: {waittime: 10min}}
        - {name: webhook, attribute: {url: "<other system>", waittime: 3min}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
        - {name: runChecks, attribute: {checks: "remapped"}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: cycle}
spec:
  rules:
    - priority: 10
      errorCode: ["95"]
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: powerCycle, attribute: {unCordon: "true"}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: probation}
spec:
  rules:
    - priority: 10
      errorCode: ["48"]
      probation: 1day
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: reboot, attribute: {unCordon: "true"}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: approved}
spec:
  rules:
    - priority: 10
      errorCode: ["61"]
      mode: approve
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: reboot, attribute: {unCordon: "true"}}
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: stop}
spec:
  rules:
    - priority: 10
      errorCode: ["140"]
      actions: [{name: cordon}, {name: stopJobs}]
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: dead}
spec:
  rules:
    - priority: 10
      errorCode: ["120"]
      actions: [{name: cordon}, {name: restartJobs}]
---
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ladder}
spec:
  rules:
    - {priority: 10, errorCode: ["46"], actions: [{name: drain, attribute: {waittime: "20min"}}, {name: replace}]}
    - priority: 10
      errorCode: ["64"]
      actions:
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: offline, attribute: {url: "<other system>", waittime: 1h, unCordon: "true"}}
    - priority: 10
      errorCode: ["63"]
      actions:
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: repair, attribute: {vendor: ACME, queue: gpu, unCordon: "true"}}
    - priority: 10
      errorCode: ["110"]
      actions:
        - {name: drain, attribute: {waittime: "20min"}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
"""
# A channel for each node, so that what is told of one is a message of its own.
NOTIFY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: tell}}
spec:
  rules:
{rules}"""
_NOTIFY_RULE = """\
    - priority: 10
      errorCode: ["74"]
      nodeSelector: {{operator: all, labels: {{kubernetes.io/hostname: {node}}}}}
      actions:
        - {{name: taint, attribute: {{key: trainy.konduktor.ai/faulty, value: "true", effect: NoSchedule}}}}
        - {{name: notify, attribute: {{channel: {channel}}}}}
"""
# What a decision system asks for.
HEAL = [
    {"name": "cordon", "waittime": "", "maps": []},
    {"name": "drain", "waittime": "20min", "maps": []},
    {"name": "reboot", "waittime": "", "maps": [{"unCordon": "true"}]},
]
PODS = ("a", "b", "c")  # on each node that is drained; evicted in this order


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``xid``: the fault that calls for it. ``ends``: state and outcome of its rescues, one after the other.
    ``boots``: how often the machine boots. ``drained``: ``PODS`` are evicted. ``jobs``: a training job moves.
    ``standby``: a spare stands in. ``ordered``: another system is asked to look at the node, and calls back.
    ``validated``: a validation of the node passes.
    ``told``: people are, by a channel. ``asked``: a decision system asks for it, on a node whose agent is silent.
    ``hung``: the machine has stopped answering. ``dead``: it reboots by itself, and its kubelet stays down until a
    person reboots it. ``released``: a person releases the node in the end. ``order``: no fault, but a person's order
    about the training job on the node, whose attempts failed first there. ``gang``: the job is
    one of Volcano, which obeys Commands. ``cycled``: its controller, or another system, switches the
    machine off and on. ``probation``: the node returns on probation, which a person ends early. ``paired``: no fault,
    but a preflight plan tests the node with another one. ``owner``: the kind of the
    object that stands for the machine, which another one replaces. ``repaired``: a person takes the node through a
    repair. ``pool``: of the node, so that it has a machine driver of its own. ``cure``: of its fault; "": a reboot.
    ``joins``: no fault, but the machine is new in the cluster, or its kubelet has registered with the readiness taint
    ("tainted"). ``published``: a DRA driver publishes its GPUs, so that one of them can be isolated. ``approved``: it
    is isolated first, and a person approves the rest. ``by_hand``: no fault, but a person asks for this act; an
    exclusion is ended by the same person."""

    xid: int
    ends: tuple[tuple[str, str], ...]
    boots: int = 0
    drained: bool = True
    jobs: bool = False
    standby: bool = False
    ordered: bool = False
    validated: bool = False
    commanded: bool = False
    asked: bool = False
    hung: bool = False
    dead: bool = False
    released: bool = False
    order: str = ""
    gang: bool = False
    cycled: bool = False
    paired: bool = False
    probation: bool = False
    joins: str = ""
    owner: str = ""
    repaired: bool = False
    pool: str = ""
    cure: str = ""
    published: bool = False
    approved: bool = False
    by_hand: str = ""


HEALED, RELEASED = ("succeeded", "healed"), ("succeeded", "done")
ISOLATED = ("succeeded", "isolated")
SWAPPED = (("cancelled", "replaced"), RELEASED)  # the burn-in of the new machine follows
JANITOR, CLAIMS, CLOUD = "janitor", "claims", "cloud"  # pools
PLANS = {
    "agent": Plan(xid=62, ends=(HEALED,), boots=1),
    "approved": Plan(xid=61, ends=(HEALED,), boots=1, approved=True),
    "job": Plan(xid=62, ends=(HEALED,), boots=1, asked=True),
    "mend": Plan(xid=119, ends=(HEALED,), jobs=True, standby=True, ordered=True, validated=True, cure="reset"),
    "janitor": Plan(xid=95, ends=(HEALED,), boots=1, cycled=True, pool=JANITOR),
    "cloud": Plan(xid=95, ends=(HEALED,), boots=1, cycled=True, pool=CLOUD),
    "janitor_reset": Plan(xid=110, ends=(HEALED,), pool=JANITOR, cure="reset"),
    "machine": Plan(xid=46, ends=SWAPPED, boots=1, owner="Machine", validated=True, cure="repair"),
    "claim": Plan(xid=46, ends=SWAPPED, boots=1, owner="NodeClaim", pool=CLAIMS, validated=True, cure="repair"),
    "offline": Plan(xid=64, ends=(HEALED,), ordered=True, cure="self"),
    "repair": Plan(xid=63, ends=(HEALED,), repaired=True, cure="self"),
    "away": Plan(xid=0, ends=(RELEASED,), repaired=True, by_hand="offline"),
    "exclude": Plan(xid=0, ends=(RELEASED, RELEASED), drained=False, by_hand="exclude"),
    "cycle": Plan(xid=95, ends=(HEALED,), boots=1, cycled=True),
    "probation": Plan(xid=48, ends=(HEALED,), boots=1, probation=True),
    "taint": Plan(xid=79, ends=(ISOLATED, RELEASED), drained=False, released=True),
    "device": Plan(xid=123, ends=(ISOLATED, RELEASED), drained=False, released=True, published=True),
    "whole": Plan(xid=123, ends=(ISOLATED, RELEASED), drained=False, released=True),
    "dead": Plan(xid=120, ends=(ISOLATED, RELEASED), boots=2, drained=False, jobs=True, dead=True, released=True),
    "stop": Plan(xid=140, ends=(ISOLATED, RELEASED), drained=False, jobs=True, released=True),
    "restart": Plan(xid=0, ends=(), drained=False, jobs=True, order="restart"),
    "label": Plan(xid=0, ends=(), drained=False, jobs=True, order="label"),
    "gang": Plan(xid=0, ends=(), drained=False, order="restart", gang=True),
    "halt": Plan(xid=0, ends=(), drained=False, jobs=True, order="stop"),
    "pair": Plan(xid=0, ends=(), drained=False, paired=True),
    "new": Plan(xid=0, ends=(RELEASED,), drained=False, joins="new", validated=True),
    "tainted": Plan(xid=0, ends=(RELEASED,), drained=False, joins="tainted", validated=True),
    "tell": Plan(xid=74, ends=(ISOLATED, RELEASED), drained=False, commanded=True, released=True),
    # Its job cannot run, so a person cancels; once the job is called back, somebody switches the machine on.
    "withdraw": Plan(
        xid=62,
        ends=(("cancelled", "cancelled"), RELEASED),
        boots=1,
        drained=False,
        asked=True,
        hung=True,
        released=True,
    ),
}


def channel(node: str) -> str:
    """The name of the channel that is told of a node."""
    return f"about-{node}"


def tell(nodes: Iterable[str]) -> str:
    """The policy by which people are told of each of these nodes."""
    return NOTIFY.format(rules="".join(_NOTIFY_RULE.format(node=node, channel=channel(node)) for node in nodes))
