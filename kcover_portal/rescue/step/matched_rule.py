"""The rule that applies to a fault of the rescue's node now."""

from kcover.decisions import match
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.step.context import Context


def of(context: Context, fault: Incident) -> match.Candidate | None:
    """The rule by the policies in force; None if none applies."""
    chosen, _ = match.match(
        policies.candidates(context.cluster.pk),
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=context.node.labels,
        fatal=fault.line.fatal,
    )
    return chosen
