"""The label, the icon and the help text of each button."""

from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _, pgettext_lazy


@dataclass(frozen=True, slots=True)
class ActionLabel:
    """The text and icon of a button, and a sentence that says what pressing it does. ``grave``: it ends work."""

    label: str | Promise
    icon: str
    help: str | Promise = ""
    grave: bool = False


VERBS: Final = {
    "cordon": ActionLabel(
        _("Cordon"),
        "lock",
        _("Stops new pods from being scheduled on the node. Running pods stay."),
    ),
    "uncordon": ActionLabel(
        _("Uncordon"),
        "lock-open",
        _("Makes the node schedulable again, whoever cordoned it. Ends an open rescue."),
    ),
    "drain": ActionLabel(
        _("Drain"),
        "arrow-right",
        _("Cordons the node, then evicts its pods within their disruption budgets."),
        grave=True,
    ),
    "reboot": ActionLabel(
        _("Reboot"),
        "power",
        _("Cordons, drains and reboots the node, verifies that it is healthy, then returns it to service."),
        grave=True,
    ),
    "offline": ActionLabel(
        _("Take offline"),
        "server-off",
        _(
            "Cordons, taints and drains the node, then opens a repair. The node returns to service once it has passed "
            "a validation."
        ),
        grave=True,
    ),
    "release": ActionLabel(
        _("Release"),
        "arrow-back-up",
        _("Removes the portal's own cordon, taints and labels from the node, and nothing else."),
    ),
    "exclude": ActionLabel(
        _("Exclude"),
        "ban",
        _(
            "The portal leaves the node alone until an operator ends the exclusion. Ends an open rescue. The node "
            "stays as it is."
        ),
    ),
    "end_exclusion": ActionLabel(
        _("End exclusion"),
        "circle-check",
        _("The portal may act on the node again. Its open faults are decided again."),
    ),
    "approve": ActionLabel(
        _("Approve"),
        "check",
        _("Once enough people approve, the open steps of the plan below run."),
    ),
    "reject": ActionLabel(
        _("Deny"),
        "x",
        _("If you deny, the plan does not run. An isolated node stays isolated until it is released."),
    ),
    "cancel": ActionLabel(
        _("Cancel rescue"),
        "ban",
        _("Stops the rescue. An isolated node stays isolated until it is released."),
        grave=True,
    ),
    "retry": ActionLabel(
        _("Retry step"),
        "refresh",
        _("Runs the failed step again from the start."),
    ),
    "skip": ActionLabel(
        _("Skip step"),
        "player-skip-forward",
        _("Continues without the failed step."),
    ),
    "accept": ActionLabel(
        pgettext_lazy("repair", "Accept"),
        "check",
        _("The repair gets an owner. Set the next date."),
    ),
    "hand-over": ActionLabel(
        _("Hand over"),
        "arrow-right",
        _("The machine goes to whoever repairs it."),
    ),
    "return": ActionLabel(
        pgettext_lazy("repair", "Take back"),
        "arrow-back-up",
        _("The machine is back. Validate it now: only a passed validation closes the repair."),
    ),
    "close": ActionLabel(
        _("Close repair"),
        "circle-check",
        _("The machine must have passed a validation since it was returned."),
    ),
    "refuse": ActionLabel(
        pgettext_lazy("repair", "Refuse"),
        "ban",
        _("The repair goes back to the role that reported it."),
    ),
}


def verb(name: str) -> ActionLabel:
    """The label of a verb; an unknown verb is shown by its own name."""
    return VERBS.get(name) or ActionLabel(name, "circle-dot")


# Settings of a rule's actions, by action and key; any action has those under "".
SETTINGS: Final = {
    ("drain", "waittime"): _("at most %(value)s"),
    ("reboot", "waittime"): _("after %(value)s"),
    ("", "unCordon=true"): _("then back to service"),
    ("", "unCordon=false"): _("then stays out of service"),
}


def setting(action: str, key: str, value: str) -> str:
    """What a setting of a rule's action means, in words with a place for the value; "" where there are none."""
    return str(SETTINGS.get((action, key)) or SETTINGS.get(("", f"{key}={value}")) or "")
