"""The look of each state: a label, a tone and an icon, in one table, so that colour is never the only signal.

Red (bad) and amber (ask) are reserved for what needs attention; blue is the portal at work, green is good, slate is
idle.
"""

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from kcover import actions
from kcover_portal.console import pair_badges, right_badges
from kcover_portal.console.action_labels import ActionLabel
from kcover_portal.console.badge import Badge
from kcover_portal.evidence.models import Bundle
from kcover_portal.notify.services import render
from kcover_portal.repairs.models import Repair
from kcover_portal.shared_reads import node_status

TABLES: Final = {
    "node": {  # most urgent first: the order of lists, of the map and of its legend
        "attention": Badge(_("Escalated to an operator"), "bad", "alert-triangle", "!"),
        "faulty": Badge(_("Degraded"), "bad", "alert-circle", "×"),
        "approval": Badge(_("Awaiting approval"), "ask", "user", "?"),
        "held": Badge(_("On hold"), "hold", "hand-stop", "‖"),
        "healing": Badge(_("Healing"), "heal", "refresh", "↻"),
        "repair": Badge(_("In repair"), "hold", "tool", "+"),
        "not-ready": Badge(_("Not ready"), "ask", "plug", "○"),
        "silent": Badge(_("Agent not reporting"), "off", "wifi-off", "…"),
        "cordoned": Badge(_("Cordoned"), "off", "lock", "∅"),
        "unknown": Badge(_("Not in the cluster"), "off", "help", "·"),
        "healthy": Badge(_("Healthy"), "ok", "circle-check", ""),
    },
    "rescue": {
        "approval": Badge(_("Awaiting approval"), "ask", "user"),
        "people": Badge(_("Needs attention"), "bad", "hand-stop"),
        "held": Badge(_("On hold"), "hold", "hand-stop"),
        "waiting": Badge(_("Waiting"), "heal", "clock"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "succeeded": Badge(_("Succeeded"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "step": {
        "pending": Badge(_("Pending"), "off", "circle-dashed"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "waiting": Badge(_("Waiting"), "heal", "clock"),
        "done": Badge(_("Done"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
        "skipped": Badge(_("Skipped"), "off", "player-skip-forward"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "incident": {
        "open": Badge(pgettext_lazy("incident", "Open"), "bad", "alert-circle"),
        "open-program": Badge(pgettext_lazy("incident", "Open"), "off", "alert-circle"),  # no fault of the node
        "closed": Badge(pgettext_lazy("incident", "Closed"), "ok", "circle-check"),
    },
    "answer": {
        "rescue": Badge(_("Rescue"), "heal", "heart-rate-monitor"),
        "approve": Badge(_("Needs approval"), "ask", "user"),
        "shadow": Badge(_("Shadow"), "hold", "eye"),
        "hold": Badge(_("Blocked"), "hold", "hand-stop"),
        "none": Badge(_("No action"), "off", "circle-minus"),
    },
    "vote": {
        "yes": Badge(_("Approved"), "ok", "check"),
        "no": Badge(_("Denied"), "bad", "x"),
        "expired": Badge(_("Not answered in time"), "ask", "hourglass"),
        "void": Badge(_("No longer needed"), "off", "circle-minus"),
    },
    "check": {
        "pass": Badge(_("Pass"), "ok", "circle-check"),
        "warn": Badge(_("Warning"), "ask", "alert-triangle"),
        "fail": Badge(_("Fail"), "bad", "circle-x"),
        "error": Badge(_("Check error"), "ask", "alert-circle"),
        "skipped": Badge(_("Skipped"), "off", "circle-minus"),
    },
    "check_run": {
        "running": Badge(_("Running"), "heal", "refresh"),
        "finished": Badge(_("Finished"), "ok", "circle-check"),
        "stopped": Badge(_("Stopped"), "off", "ban"),
    },
    "validation": {
        "waiting": Badge(_("Waiting"), "off", "clock"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "passed": Badge(_("Passed"), "ok", "shield-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
        "error": Badge(_("Not proven"), "ask", "alert-circle"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "policy_try": {
        "waiting": Badge(_("Waiting"), "off", "clock"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "done": Badge(_("Done"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "verification": {
        "waiting": Badge(_("Waiting"), "off", "clock"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "done": Badge(_("Done"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
    },
    "check_turn": {
        "waiting": Badge(_("Waiting"), "off", "clock"),
        "requested": Badge(_("Running"), "heal", "refresh"),
        "done": Badge(_("Done"), "ok", "circle-check"),
        "silent": Badge(_("No answer"), "ask", "wifi-off"),
        "stopped": Badge(_("Stopped"), "off", "ban"),
    },
    "preflight": {
        "waiting": Badge(_("Waiting for reports"), "heal", "clock"),
        "complete": Badge(pgettext_lazy("preflight", "Complete"), "ok", "circle-check"),
        "expired": Badge(pgettext_lazy("preflight", "Expired"), "ask", "hourglass"),
    },
    **pair_badges.TABLES,
    "preflight_node": {
        "abnormal": Badge(_("Abnormal"), "bad", "circle-x"),
        "slow": Badge(pgettext_lazy("preflight", "Slow"), "bad", "trending-down"),
        "suspect": Badge(_("Suspect (one of two)"), "ask", "help"),
        "": Badge(_("No problems"), "ok", "circle-check"),
    },
    "severity": {
        "fatal": Badge(_("Fatal"), "bad", "flame"),
        "degraded": Badge(pgettext_lazy("severity", "Degraded"), "bad", "alert-triangle"),
        "warning": Badge(_("Warning"), "off", "alert-circle"),
        "info": Badge(_("Info"), "off", "info-circle"),
        "varies": Badge(_("Depends on the log line"), "off", "help"),
    },
    "mode": {
        "enforce": Badge(_("Enforcing"), "ok", "shield-check"),
        "approve": Badge(_("Approval mode"), "ask", "user"),
        "shadow": Badge(_("Shadow mode"), "hold", "eye"),
        "paused": Badge(_("Paused"), "bad", "player-pause"),
    },
    "guard": {
        "tripped": Badge(_("Blocking"), "bad", "hand-stop"),
        "near": Badge(_("Nearly used up"), "ask", "alert-triangle"),
        "calm": Badge(_("OK"), "ok", "circle-check"),
        "off": Badge(_("Not set"), "off", "circle-minus"),
        "storm": Badge(_("Storm"), "bad", "bolt"),
        "breaker": Badge(_("Breaker open"), "bad", "hand-stop"),
        "maintenance": Badge(_("Maintenance"), "hold", "tool"),
    },
    "job": {
        "running": Badge(_("Running"), "ok", "circle-check"),
        "restarting": Badge(_("Restarting"), "heal", "refresh"),
        "waiting": Badge(_("Waiting"), "ask", "clock"),
        "failed": Badge(_("Failed"), "bad", "alert-circle"),
        "stopped": Badge(_("Stopped"), "off", "ban"),
    },
    "spare": {
        "ready": Badge(_("Ready"), "ok", "circle-check"),
        "reserved": Badge(_("Reserved"), "heal", "clock"),
        "active": Badge(_("In service"), "heal", "switch-horizontal"),
        "released": Badge(_("Released"), "off", "arrow-back-up"),
        "unfit": Badge(_("Unavailable"), "ask", "alert-triangle"),
    },
    "health": {
        "healthy": Badge(pgettext_lazy("health", "Healthy"), "ok", "circle-check"),
        "unknown": Badge(pgettext_lazy("health", "Unknown"), "off", "help"),
        "degraded": Badge(pgettext_lazy("health", "Degraded"), "ask", "alert-triangle"),
        "unhealthy": Badge(pgettext_lazy("health", "Unhealthy"), "bad", "alert-circle"),
    },
    "well": {
        "yes": Badge(_("OK"), "ok", "circle-check"),
        "no": Badge(_("Problem"), "bad", "alert-circle"),
    },
    "right": right_badges.BADGES,
    "token": {
        "live": Badge(_("Valid"), "ok", "key"),
        "expired": Badge(_("Expired"), "off", "clock"),
        "revoked": Badge(_("Revoked"), "off", "ban"),
        "suspended": Badge(_("Creator disabled"), "off", "ban"),
        "ownerless": Badge(_("Creator is no longer an admin"), "off", "ban"),
    },
    "channel": {
        "works": Badge(_("Working"), "ok", "circle-check"),
        "trouble": Badge(_("Failing"), "bad", "alert-circle"),
        "new": Badge(_("Nothing sent yet"), "off", "circle-dashed"),
        "off": Badge(_("Disabled"), "off", "player-pause"),
    },
    "source": {
        "works": Badge(_("Working"), "ok", "circle-check"),
        "trouble": Badge(_("Failing"), "bad", "alert-circle"),
        "new": Badge(_("No data yet"), "off", "circle-dashed"),
        "off": Badge(_("Disabled"), "off", "player-pause"),
    },
    "repair": {
        "reported": Badge(Repair.State.REPORTED.label, "ask", "clipboard-list"),
        "accepted": Badge(Repair.State.ACCEPTED.label, "heal", "user"),
        "in_repair": Badge(Repair.State.IN_REPAIR.label, "heal", "tool"),
        "returned": Badge(Repair.State.RETURNED.label, "heal", "arrow-back-up"),
        "validating": Badge(Repair.State.VALIDATING.label, "heal", "progress-check"),
        "closed": Badge(Repair.State.CLOSED.label, "ok", "circle-check"),
        "refused": Badge(Repair.State.REFUSED.label, "ask", "ban"),
    },
    "evidence": {
        "requested": Badge(Bundle.State.REQUESTED.label, "heal", "clock"),
        "kept": Badge(Bundle.State.KEPT.label, "ok", "circle-check"),
        "deleted": Badge(Bundle.State.DELETED.label, "off", "ban"),
        "missed": Badge(Bundle.State.MISSED.label, "off", "circle-x"),
    },
    "evidence_section": {
        "ok": Badge(_("Collected"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "off", "circle-x"),
        "late": Badge(_("Too slow"), "off", "clock"),
        "missing": Badge(_("Not on this node"), "off", "ban"),
    },
    "delivery": {
        "batching": Badge(_("Batching"), "heal", "stack"),
        "pending": Badge(_("Waiting"), "heal", "clock"),
        "sending": Badge(_("Sending"), "heal", "send"),
        "sent": Badge(_("Sent"), "ok", "circle-check"),
        "failed": Badge(_("Not delivered"), "bad", "circle-x"),
        "dropped": Badge(_("Dropped"), "off", "ban"),
    },
    "verified": {
        "yes": Badge(_("Verified healthy"), "ok", "shield-check"),
        "no": Badge(_("Verification failed"), "bad", "circle-x"),
        "untried": Badge(_("Not verified"), "off", "shield"),
    },
}
RESCUE: Final = TABLES["rescue"]
NODE: Final = dict(TABLES["node"])  # what the map and the tiles show
TABLES["node"] |= {
    "other": Badge(node_status.OFF_THE_MAP["other"], "off", "server"),
    "gone": Badge(node_status.OFF_THE_MAP["gone"], "off", "ban"),
}

GUARDS: Final = {  # what bounds automation: name, and its effect in a sentence
    "storm": ActionLabel(
        _("Storm"), "bolt", _("Many nodes fail in the same way at once, so a shared cause is likely.")
    ),
    "rate": ActionLabel(
        _("Fault rate"),
        "trending-up",
        _("Pauses drains, resets and reboots while the fault rate is abnormally high."),
    ),
    "breaker": ActionLabel(_("Breaker"), "hand-stop", _("Maximum number of nodes isolated within a time window.")),
    "budget": ActionLabel(
        _("Budget"), "gauge", _("Maximum number of nodes isolated or under rescue at the same time.")
    ),
    "floor": ActionLabel(_("Pool floor"), "stack", _("Minimum share of a pool that must stay in service.")),
    "plans": ActionLabel(_("Plans"), "robot", _("Maximum number of open plans from external decision systems.")),
    "cooldown": ActionLabel(
        _("Cooldown"), "clock", _("The portal leaves a node alone for this long after its rescue.")
    ),
    "hold_down": ActionLabel(
        _("Hold-down"), "hourglass", _("A node counts as healthy once it has had no fault for this long.")
    ),
    "repeats": ActionLabel(
        _("Repeats"), "rotate-clockwise", _("Reboots or resets per node before an operator takes over.")
    ),
    "ladder": ActionLabel(
        _("Inspection"), "search", _("Reboots for one fault code before the hardware must be inspected.")
    ),
    "expiry": ActionLabel(_("Expiry"), "history", _("Blocked actions expire this long after the last occurrence.")),
    "exclusion": ActionLabel(
        _("Exclusion"), "ban", _("Nodes with the label kcover.io/exclude=true are never touched.")
    ),
    "maintenance": ActionLabel(
        _("Maintenance"), "tool", _("During this window the portal will not cordon, drain or reboot these nodes.")
    ),
}

OUTCOMES: Final = {
    "healed": _("Healed"),
    "isolated": _("Isolated"),
    "escalated": _("Escalated to an operator"),
    "failed_validation": _("Failed its validation"),
    "done": _("Done"),
    "overruled": _("Undone manually"),
    "expired": _("Not answered in time"),
    "given_up": _("Expired while blocked"),
    "rejected": _("Denied"),
    "void": _("No longer needed"),
    "replaced": _("Machine replaced"),
}


def of(table: str, state: str) -> Badge:
    """The badge of a state; an unknown state is shown by its name."""
    return TABLES[table].get(state) or Badge(state, "off", "circle-dashed")


def connection(*, enabled: bool, trouble: object, worked: object) -> str:
    """The state of a channel, a sink or a source, a key of their tables. ``worked``: whether, or when, it last did."""
    if not enabled:
        return "off"
    if trouble:
        return "trouble"
    return "works" if worked else "new"


def event_kind(kind: str) -> str | Promise:
    return render.TITLES.get(kind, kind)


def step_title(name: str) -> str:
    spec = actions.ACTIONS.get(name)
    return gettext(spec.title) if spec is not None else name


def action_title(name: str) -> str:
    """The title of a policy's action; an action that this version does not have is shown by its own name."""
    specs = (spec for spec in actions.in_order() if spec.policy is not None and spec.policy.name == name)
    spec = next(specs, None)
    return gettext(spec.title) if spec is not None else name
