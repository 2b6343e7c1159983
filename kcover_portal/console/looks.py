"""How each state looks: a label, a tone and an icon, in one table, so that colour never stands alone.

Red (bad) and amber (ask) are kept for what needs a person; blue is the portal at work, green is good, slate is idle.
"""

from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from kcover_portal.notify.services import composing


@dataclass(frozen=True, slots=True)
class Look:
    """What a state is called and how it is drawn; ``sign`` is its one character on the fleet map."""

    label: str | Promise
    tone: str
    icon: str
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Verb:
    """What a button says and shows, and what pressing it does, in a sentence."""

    label: str | Promise
    icon: str
    help: str | Promise = ""


TABLES: Final = {
    "node": {  # most urgent first: the order of lists, of the map and of its legend
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
    },
    "rescue": {
        "approval": Look(_("Awaiting approval"), "ask", "user"),
        "people": Look(_("Held for a person"), "bad", "hand-stop"),
        "held": Look(_("Held"), "hold", "hand-stop"),
        "waiting": Look(_("Waiting"), "heal", "clock"),
        "running": Look(_("Running"), "heal", "refresh"),
        "succeeded": Look(_("Succeeded"), "ok", "circle-check"),
        "failed": Look(_("Failed"), "bad", "circle-x"),
        "cancelled": Look(_("Cancelled"), "off", "ban"),
    },
    "step": {
        "pending": Look(_("Pending"), "off", "circle-dashed"),
        "running": Look(_("Running"), "heal", "refresh"),
        "waiting": Look(_("Waiting"), "heal", "clock"),
        "done": Look(_("Done"), "ok", "circle-check"),
        "failed": Look(_("Failed"), "bad", "circle-x"),
        "skipped": Look(_("Skipped"), "off", "player-skip-forward"),
        "cancelled": Look(_("Cancelled"), "off", "ban"),
    },
    "incident": {
        "open": Look(pgettext_lazy("incident", "Open"), "bad", "alert-circle"),
        "closed": Look(pgettext_lazy("incident", "Closed"), "ok", "circle-check"),
    },
    "answer": {
        "rescue": Look(_("Rescue"), "heal", "heart-rate-monitor"),
        "approve": Look(_("Needs approval"), "ask", "user"),
        "shadow": Look(_("Shadow"), "hold", "eye"),
        "hold": Look(_("Held back"), "hold", "hand-stop"),
        "none": Look(_("Nothing to do"), "off", "circle-minus"),
    },
    "vote": {
        "yes": Look(_("Yes"), "ok", "check"),
        "no": Look(_("No"), "bad", "x"),
        "expired": Look(_("Nobody answered in time"), "ask", "hourglass"),
        "void": Look(_("Nothing was left to answer"), "off", "circle-minus"),
    },
    "check": {
        "pass": Look(_("Pass"), "ok", "circle-check"),
        "warn": Look(_("Warning"), "ask", "alert-triangle"),
        "fail": Look(_("Fail"), "bad", "circle-x"),
        "error": Look(_("Check broke"), "ask", "alert-circle"),
        "skipped": Look(_("Skipped"), "off", "circle-minus"),
    },
    "check_run": {
        "running": Look(_("Running"), "heal", "refresh"),
        "finished": Look(_("Finished"), "ok", "circle-check"),
        "stopped": Look(_("Stopped"), "off", "ban"),
    },
    "check_turn": {
        "waiting": Look(_("Waiting"), "off", "clock"),
        "asked": Look(_("Running"), "heal", "refresh"),
        "done": Look(_("Done"), "ok", "circle-check"),
        "silent": Look(_("No answer"), "ask", "wifi-off"),
        "stopped": Look(_("Stopped"), "off", "ban"),
    },
    "preflight": {
        "waiting": Look(_("Waiting for reports"), "heal", "clock"),
        "complete": Look(pgettext_lazy("preflight", "Complete"), "ok", "circle-check"),
        "expired": Look(pgettext_lazy("preflight", "Expired"), "ask", "hourglass"),
    },
    "preflight_node": {
        "abnormal": Look(_("Abnormal"), "bad", "circle-x"),
        "slow": Look(pgettext_lazy("preflight", "Slow"), "bad", "trending-down"),
        "suspect": Look(_("One of two"), "ask", "help"),
        "": Look(_("Nothing found"), "ok", "circle-check"),
    },
    "severity": {
        "critical": Look(_("Critical"), "bad", "bolt"),
        "fatal": Look(_("Fatal"), "bad", "flame"),
        "degraded": Look(pgettext_lazy("severity", "Degraded"), "bad", "alert-triangle"),
        "warning": Look(_("Warning"), "off", "alert-circle"),
        "info": Look(_("Info"), "off", "info-circle"),
        "varies": Look(_("Depends on the line"), "off", "help"),
    },
    "mode": {
        "enforce": Look(_("Enforcing"), "ok", "shield-check"),
        "approve": Look(_("Approval mode"), "ask", "user"),
        "shadow": Look(_("Shadow mode"), "hold", "eye"),
        "paused": Look(_("Paused"), "bad", "player-pause"),
    },
    "guard": {
        "tripped": Look(_("Holds back"), "bad", "hand-stop"),
        "near": Look(_("Little left"), "ask", "alert-triangle"),
        "calm": Look(_("Lets pass"), "ok", "circle-check"),
        "off": Look(_("Not set"), "off", "circle-minus"),
        "storm": Look(_("Storm"), "bad", "bolt"),
        "breaker": Look(_("Breaker open"), "bad", "hand-stop"),
        "maintenance": Look(_("Maintenance"), "hold", "tool"),
    },
    "spare": {
        "ready": Look(_("Ready to take over"), "ok", "circle-check"),
        "reserved": Look(_("Reserved"), "heal", "clock"),
        "active": Look(_("In service"), "heal", "switch-horizontal"),
        "released": Look(_("Given back"), "off", "arrow-back-up"),
        "unfit": Look(_("Not fit"), "ask", "alert-triangle"),
    },
    "health": {
        "healthy": Look(pgettext_lazy("health", "Healthy"), "ok", "circle-check"),
        "unknown": Look(pgettext_lazy("health", "Unknown"), "off", "help"),
        "degraded": Look(pgettext_lazy("health", "Degraded"), "ask", "alert-triangle"),
        "unhealthy": Look(pgettext_lazy("health", "Unhealthy"), "bad", "alert-circle"),
    },
    "well": {
        "yes": Look(_("Well"), "ok", "circle-check"),
        "no": Look(_("Not well"), "bad", "alert-circle"),
    },
    "token": {
        "live": Look(_("In force"), "ok", "key"),
        "expired": Look(_("Expired"), "off", "clock"),
        "revoked": Look(_("Withdrawn"), "off", "ban"),
    },
    "channel": {
        "works": Look(_("Works"), "ok", "circle-check"),
        "trouble": Look(_("Does not take it"), "bad", "alert-circle"),
        "new": Look(_("Nothing sent yet"), "off", "circle-dashed"),
        "off": Look(_("Switched off"), "off", "player-pause"),
    },
    "delivery": {
        "gathers": Look(_("Gathers"), "heal", "stack"),
        "pending": Look(_("Waiting"), "heal", "clock"),
        "sending": Look(_("Being sent"), "heal", "send"),
        "sent": Look(_("Sent"), "ok", "circle-check"),
        "failed": Look(_("Not delivered"), "bad", "circle-x"),
        "dropped": Look(_("Dropped"), "off", "ban"),
    },
    "verified": {
        "yes": Look(_("Verified healthy"), "ok", "shield-check"),
        "no": Look(_("Verification failed"), "bad", "circle-x"),
        "untried": Look(_("Not verified"), "off", "shield"),
    },
}
NODE: Final = TABLES["node"]

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
    "label": _("Label"),
    "standby": _("Bring a standby in"),
    "restart_jobs": _("Restart jobs"),
    "webhook": _("Tell another system"),
    "notify": _("Tell people"),
    "reset": _("Reset the GPU"),
    "run_checks": _("Run checks"),
}

GUARDS: Final = {  # what bounds automation: name, and what it does in a sentence
    "storm": Verb(_("Storm"), "bolt", _("One symptom on many nodes at once: its cause is not in the nodes.")),
    "rate": Verb(
        _("Rate of faults"),
        "trending-up",
        _("More faulty nodes than chance explains: nothing is drained, reset or rebooted."),
    ),
    "breaker": Verb(_("Breaker"), "hand-stop", _("So many nodes are taken out of scheduling within a time at most.")),
    "budget": Verb(_("Budget"), "gauge", _("So many nodes are isolated or in rescue at one time at most.")),
    "floor": Verb(_("Floor of a pool"), "stack", _("So much of a pool stays in service.")),
    "plans": Verb(_("Plans"), "robot", _("So many plans of decision systems are open at one time at most.")),
    "cooldown": Verb(_("Cooldown"), "clock", _("How long a node is left alone after a rescue.")),
    "hold_down": Verb(
        _("Hold-down"), "hourglass", _("How long a node must be without a fault before it counts as healthy.")
    ),
    "repeats": Verb(_("Repeats"), "rotate-clockwise", _("After so many reboots of one node people take over.")),
    "ladder": Verb(_("Inspection"), "search", _("After so many reboots for one code the hardware is to be inspected.")),
    "expiry": Verb(
        _("Expiry"), "history", _("What was held back is given up when the fault was not seen for so long.")
    ),
    "exclusion": Verb(_("Exclusion"), "ban", _("The node carries the label kcover.io/exclude=true: hands off.")),
    "maintenance": Verb(_("Maintenance"), "tool", _("People work there: nothing is taken out, nothing rebooted.")),
}

OUTCOMES: Final = {
    "healed": _("Healed"),
    "isolated": _("Isolated"),
    "escalated": _("Left to people"),
    "done": _("Done"),
    "overruled": _("Taken back by hand"),
    "expired": _("Nobody answered in time"),
    "given_up": _("Given up after being held back"),
    "rejected": _("A person said no"),
    "void": _("Nothing was left to answer"),
    "replaced": _("The machine was replaced"),
}

VERBS: Final = {
    "cordon": Verb(
        _("Cordon"),
        "lock",
        _("Nothing new is scheduled on the node; what runs stays."),
    ),
    "uncordon": Verb(
        _("Uncordon"),
        "lock-open",
        _("The node takes work again, whoever cordoned it. An open rescue ends."),
    ),
    "drain": Verb(
        _("Drain"),
        "arrow-right",
        _("Cordons the node, then evicts what runs on it, within the disruption budgets."),
    ),
    "reboot": Verb(
        _("Reboot"),
        "power",
        _("Cordons, drains and reboots the node, proves it healthy, then gives it back."),
    ),
    "release": Verb(
        _("Release"),
        "arrow-back-up",
        _("The portal lets go: it takes back its own cordon, taints and labels, and nothing else."),
    ),
    "approve": Verb(
        _("Approve"),
        "check",
        _("The portal carries out the plan below."),
    ),
    "reject": Verb(
        _("Reject"),
        "x",
        _("Nothing is done. The node stays as it is."),
    ),
    "cancel": Verb(
        _("Cancel rescue"),
        "ban",
        _("Nothing more is done. A node that is isolated stays isolated until it is released."),
    ),
    "retry": Verb(
        _("Retry step"),
        "refresh",
        _("The step that failed is run once more, from its beginning."),
    ),
    "skip": Verb(
        _("Skip step"),
        "player-skip-forward",
        _("The portal goes on without the step that failed."),
    ),
}


def of(table: str, state: str) -> Look:
    """The look of a state; one that no table knows is shown by its own name, in slate."""
    return TABLES[table].get(state) or Look(state, "off", "circle-dashed")


def happening(kind: str) -> str | Promise:
    """What people call a kind of happening."""
    return composing.TITLES.get(kind, kind)


def verb(name: str) -> Verb:
    """How a verb is shown; one that is not known by its own name."""
    return VERBS.get(name) or Verb(name, "circle-dot")
