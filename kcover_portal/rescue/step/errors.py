"""The errors that end a run of a step, and errors as reasons."""

from kcover import reasons
from kcover_portal.kube import port, reasons as kube_reasons


class LeaseLost(reasons.ExplainedError):
    """Another worker has the rescue now, or an operator ended it: stop and settle nothing."""


class WriteForbidden(reasons.ExplainedError):
    """A check right before the write found a state that forbids it. Nothing was written."""


class AnotherMachine(WriteForbidden):
    """The cluster has another machine under the node's name than the one that the rescue is about."""


class TakenBack(WriteForbidden):
    """The node no longer carries the rescue's changes: someone took it back by hand."""


def reason_of(error: port.KubeError | reasons.ExplainedError) -> reasons.Reason:
    """The reason why a call was not made, or the cluster's answer if it did not carry out the call."""
    return error.reason if isinstance(error, reasons.ExplainedError) else kube_reasons.of(error)
