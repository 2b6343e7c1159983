"""exclude and end_exclusion: set and remove the label by which people keep the portal off a node.

The label is no mark of the portal's: a release leaves it, and only a person's own act or ``kubectl`` removes it.
"""

from kcover import audit, reasons
from kcover.decisions import guards
from kcover_portal.kube import port
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Outcome

VALUE = "true"


def run(context: Context) -> Outcome:
    """Sets the label. The portal's own row has it at once: a fault that is decided before the watch tells is held."""
    _label(context, VALUE)
    node_marks.note_excluded(context.node)
    return Done(reasons.of("excluded_by_hand"))


def end(context: Context) -> Outcome:
    """Removes the label, whoever set it."""
    _label(context, None)
    return Done(reasons.of("exclusion_ended"))


def _label(context: Context, value: str | None) -> None:
    def expect(node: port.Node) -> None:
        context.check_machine(node)
        context.renew_if_needed()

    change = port.NodeChange(labels={guards.EXCLUDE_LABEL: value})
    context.write(
        audit.Call.LABEL,
        lambda: context.kube.apply_node(context.node.name, change, expect=expect),
        wanted=audit.NodePatch(
            label=f"{guards.EXCLUDE_LABEL}-" if value is None else f"{guards.EXCLUDE_LABEL}={value}"
        ),
    )
