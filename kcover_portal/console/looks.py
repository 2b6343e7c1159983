"""How each state looks: a label, a tone and an icon, in one table, so that colour never stands alone.

Red (bad) and amber (ask) are kept for what needs a person; blue is the portal at work, green is good, slate is idle.
"""

from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


@dataclass(frozen=True, slots=True)
class Look:
    """What a state is called and how it is drawn; ``sign`` is its one character on the fleet map."""

    label: str | Promise
    tone: str
    icon: str
    sign: str = ""


NODE: Final = {  # most urgent first: the order of lists, of the map and of its legend
    "attention": Look(_("Needs a person"), "bad", "alert-triangle", "!"),
    "faulty": Look(_("Degraded"), "bad", "alert-circle", "×"),
    "approval": Look(_("Awaiting approval"), "ask", "user", "?"),
    "held": Look(_("Held"), "hold", "hand-stop", "‖"),
    "healing": Look(_("Healing"), "heal", "refresh", "↻"),
    "not-ready": Look(_("Not ready"), "ask", "plug", "○"),
    "silent": Look(_("Agent silent"), "off", "wifi-off", "…"),
    "cordoned": Look(_("Cordoned"), "off", "lock", "∅"),
    "unknown": Look(_("Not in the cluster"), "off", "help", "·"),
    "healthy": Look(_("Healthy"), "ok", "circle-check", ""),
}

RESCUE: Final = {
    "approval": Look(_("Awaiting approval"), "ask", "user"),
    "people": Look(_("Held for a person"), "bad", "hand-stop"),
    "held": Look(_("Held"), "hold", "hand-stop"),
    "waiting": Look(_("Waiting"), "heal", "clock"),
    "running": Look(_("Running"), "heal", "refresh"),
    "succeeded": Look(_("Succeeded"), "ok", "circle-check"),
    "failed": Look(_("Failed"), "bad", "circle-x"),
    "cancelled": Look(_("Cancelled"), "off", "ban"),
}

STEP: Final = {
    "pending": Look(_("Pending"), "off", "circle-dashed"),
    "running": Look(_("Running"), "heal", "refresh"),
    "waiting": Look(_("Waiting"), "heal", "clock"),
    "done": Look(_("Done"), "ok", "circle-check"),
    "failed": Look(_("Failed"), "bad", "circle-x"),
    "skipped": Look(_("Skipped"), "off", "player-skip-forward"),
    "cancelled": Look(_("Cancelled"), "off", "ban"),
}

INCIDENT: Final = {
    "open": Look(pgettext_lazy("incident", "Open"), "bad", "alert-circle"),
    "closed": Look(pgettext_lazy("incident", "Closed"), "ok", "circle-check"),
}

ANSWER: Final = {
    "rescue": Look(_("Rescue"), "heal", "heart-rate-monitor"),
    "approve": Look(_("Needs approval"), "ask", "user"),
    "shadow": Look(_("Shadow"), "hold", "eye"),
    "hold": Look(_("Held back"), "hold", "hand-stop"),
    "none": Look(_("Nothing to do"), "off", "circle-minus"),
}

CHECK: Final = {
    "pass": Look(_("Pass"), "ok", "circle-check"),
    "warn": Look(_("Warning"), "ask", "alert-triangle"),
    "fail": Look(_("Fail"), "bad", "circle-x"),
    "error": Look(_("Check broke"), "ask", "alert-circle"),
    "skipped": Look(_("Skipped"), "off", "circle-minus"),
}

SEVERITY: Final = {
    "fatal": Look(_("Fatal"), "bad", "flame"),
    "degraded": Look(pgettext_lazy("severity", "Degraded"), "bad", "alert-triangle"),
    "warning": Look(_("Warning"), "off", "alert-circle"),
    "info": Look(_("Info"), "off", "info-circle"),
    "varies": Look(_("Depends on the line"), "off", "help"),
}

MODE: Final = {
    "enforce": Look(_("Enforcing"), "ok", "shield-check"),
    "approve": Look(_("Approval mode"), "ask", "user"),
    "shadow": Look(_("Shadow mode"), "hold", "eye"),
    "paused": Look(_("Paused"), "bad", "player-pause"),
}

VERIFIED: Final = {
    "yes": Look(_("Verified healthy"), "ok", "shield-check"),
    "no": Look(_("Verification failed"), "bad", "circle-x"),
    "untried": Look(_("Not verified"), "off", "shield"),
}

TABLES: Final = {
    "node": NODE,
    "rescue": RESCUE,
    "step": STEP,
    "incident": INCIDENT,
    "answer": ANSWER,
    "check": CHECK,
    "severity": SEVERITY,
    "mode": MODE,
    "verified": VERIFIED,
}

STEP_TITLES: Final = {
    "taint": _("Taint"),
    "cordon": _("Cordon"),
    "drain": _("Drain"),
    "reboot": _("Reboot"),
    "ready": _("Wait until ready"),
    "verify": _("Verify"),
    "uncordon": _("Uncordon"),
    "release": _("Release"),
    "escalate": _("Call a person"),
}

OUTCOMES: Final = {
    "healed": _("Healed"),
    "isolated": _("Isolated"),
    "escalated": _("Left to people"),
    "done": _("Done"),
    "overruled": _("Taken back by hand"),
}

VERBS: Final = {  # what a button says
    "cordon": _("Cordon"),
    "uncordon": _("Uncordon"),
    "drain": _("Drain"),
    "reboot": _("Reboot"),
    "release": _("Release"),
    "approve": _("Approve"),
    "reject": _("Reject"),
    "cancel": _("Cancel rescue"),
    "retry": _("Retry step"),
    "skip": _("Skip step"),
}

VERB_ICONS: Final = {
    "cordon": "lock",
    "uncordon": "lock-open",
    "drain": "arrow-right",
    "reboot": "power",
    "release": "arrow-back-up",
    "approve": "check",
    "reject": "x",
    "cancel": "ban",
    "retry": "refresh",
    "skip": "player-skip-forward",
}

VERB_HELP: Final = {
    "cordon": _("Nothing new is scheduled on the node; what runs stays."),
    "uncordon": _("The node takes work again, whoever cordoned it. An open rescue ends."),
    "drain": _("Cordons the node, then evicts what runs on it, within the disruption budgets."),
    "reboot": _("Cordons, drains and reboots the node, proves it healthy, then gives it back."),
    "release": _("The portal lets go: it takes back its own cordon, taints and labels, and nothing else."),
    "approve": _("The portal carries out the plan below."),
    "reject": _("Nothing is done. The node stays as it is."),
    "cancel": _("Nothing more is done. A node that is isolated stays isolated until it is released."),
    "retry": _("The step that failed is run once more, from its beginning."),
    "skip": _("The portal goes on without the step that failed."),
}


def of(table: str, state: str) -> Look:
    """The look of a state; one that no table knows is shown by its own name, in slate."""
    return TABLES[table].get(state) or Look(state, "off", "circle-dashed")
