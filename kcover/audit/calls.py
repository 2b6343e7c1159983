"""Calls that change a cluster, or ask another system to act on a node: one entry before the call, one after it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from kcover import reasons
from kcover.audit.base import Act
from kcover.audit.call_answers import Answer
from kcover.audit.call_values import Wanted
from kcover.reasons import Reason


class Call(StrEnum):
    """Every kind of call. The value is the first part of the verb."""

    ACTIVATE = "activate"
    AUTOPILOT_LABELS = "autopilot_labels"
    COMMAND = "command"
    CORDON = "cordon"
    DELETE = "delete"
    END_PROBATION = "end_probation"
    EVICT = "evict"
    EXCLUDE = "exclude"
    GIVE_BACK = "give_back"
    LABEL = "label"
    MARK_DEVICE = "mark_device"
    PAIR_TEST = "pair_test"
    PAIR_TEST_CLEANUP = "pair_test_cleanup"
    PREFLIGHT_LABEL = "preflight_label"
    POWER_CYCLE = "power_cycle"
    POWER_OFF = "power_off"
    POWER_ON = "power_on"
    PVC_CREATE = "pvc.create"
    PVC_DELETE = "pvc.delete"
    REBOOT = "reboot"
    RELEASE = "release"
    REPAIR = "repair"
    REPLACE = "replace"
    RESERVE = "reserve"
    RESET = "reset"
    RUN_CHECKS = "run_checks"
    TAINT = "taint"
    TAINT_DEVICE = "taint_device"
    UNCORDON = "uncordon"
    UNTAINT = "untaint"
    UNTAINT_DEVICE = "untaint_device"
    VALIDATE = "validate"
    WEBHOOK = "webhook"
    WITHDRAW = "withdraw"
    YIELD = "yield"


class ClusterCall(Act, subject="{target}"):
    """A call. ``target``: the object of the call, such as "node gpu-3" or "pod train/worker-1".

    ``step`` and ``name``: the step of the rescue that makes the call, by its place in the plan and its action. ``rule``
    and ``revision``: the policy by which the rescue was opened. ``check_run``, ``pair_plan``, ``job_order``: the
    check run, the plan of pair tests or the order about a training job for which the call is made.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {"node": "node", "rescue": "rescue", "target": "subject"}

    call: Call
    target: str
    node: str = ""
    rescue: int | None = None
    step: int | None = None
    name: str = ""
    rule: str = ""
    revision: int | None = None
    check_run: int | None = None
    pair_plan: int | None = None
    job_order: int | None = None

    @classmethod
    def title_of(cls, verb: str) -> Reason:
        """The call and its phase."""
        call, _, phase = verb.rpartition(".")
        return reasons.of(f"audit.call_{phase}", call=reasons.of(f"audit.call.{call}"))


class ClusterCallBegun(ClusterCall, verb="{call}.begun"):
    """Written before the call, in the transaction that holds the lease and has evaluated the guards.

    ``passed_over``: the guards that a named person overrode for this call.
    """

    wanted: Wanted | None = None
    attempt: int | None = None
    passed_over: tuple[Reason, ...] = ()


class ClusterCallFailed(ClusterCall, verb="{call}.failed"):
    """The call failed. ``held_back``: it was never made: a guard, a pause, the mode, a delay or an error came first."""

    because: Reason
    held_back: bool


class ClusterCallDone(ClusterCall, verb="{call}.done"):
    """The call was answered. ``answer``: None if the call has no answer."""

    answer: Answer | None = None
