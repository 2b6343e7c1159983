"""The errors that end a run of a step, and errors as reasons."""

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.kube import reasons as kube_reasons


class LeaseLost(reasons.ExplainedError):
    """Another worker has the rescue now, or an operator ended it: stop and settle nothing."""


class Stopped(reasons.ExplainedError):
    """What a call read right before its write forbids the write; nothing was written."""


class AnotherMachine(Stopped):
    """The cluster has another machine under the node's name than the one that the rescue is about."""


class TakenBack(Stopped):
    """The node no longer carries the rescue's changes: someone took it back by hand."""


def reason_of(error: port.KubeError | reasons.ExplainedError) -> reasons.Reason:
    """Why a call was not made, or what the cluster answered instead of doing it."""
    return error.reason if isinstance(error, reasons.ExplainedError) else kube_reasons.of(error)
