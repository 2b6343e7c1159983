"""The walk-throughs whose calls are struck, and how each ends when nothing strikes it."""

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
metadata: {name: mend}
spec:
  rules:
    - priority: 10
      errorCode: ["119"]
      actions:
        - name: cordon
        - {name: label, attribute: {key: example.com/health, value: "xid-<code>"}}
        - name: enableWarmStandby
        - name: restartJobs
        - {name: drain, attribute: {waittime: 10min}}
        - {name: webhook, attribute: {url: "<other system>", waittime: 1min}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
        - {name: runChecks, attribute: {checks: "remapped"}}
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
    ``boots``: how often the machine boots. ``drained``: ``PODS`` are evicted. ``jobs``: a training job is restarted.
    ``standby``: a spare stands in. ``ordered``: another system is asked to look at the node, and calls back."""

    xid: int
    ends: tuple[tuple[str, str], ...]
    boots: int = 0
    drained: bool = True
    jobs: bool = False
    standby: bool = False
    ordered: bool = False


PLANS = {
    "agent": Plan(xid=62, ends=(("succeeded", "healed"),), boots=1),
    # Asked for by a decision system, on a node whose agent has fallen silent.
    "job": Plan(xid=62, ends=(("succeeded", "healed"),), boots=1),
    "mend": Plan(xid=119, ends=(("succeeded", "healed"),), jobs=True, standby=True, ordered=True),
    # A person releases the node.
    "taint": Plan(xid=79, ends=(("succeeded", "isolated"), ("succeeded", "done")), drained=False),
}
