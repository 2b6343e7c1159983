"""The words of a policy with their meaning: what the editor completes and explains, in the reader's language."""

from collections.abc import Mapping
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy as _, pgettext

from kcover import actions
from kcover.actions.validate import PROFILES
from kcover.faults import catalog, fault
from kcover.policy import document, modes
from kcover.policy.document import fault_selector
from kcover_portal.console import fault_names
from kcover_portal.runtime.models import Mode

Words = Mapping[str, str | Promise]

# By the key that contains them; "" is the document, and "rule" an entry of rules.
KEYS: Final[Mapping[str, Words]] = {
    "": {
        "apiVersion": _("kcover.io/v1, or KCE's rescue.ksyun.com/v1 without the portal's own keys."),
        "kind": _("RescuePolicy, or WarmStandbyPolicy for spare nodes."),
        "metadata": _("Contains the name of the policy."),
        "spec": _("Contains the rules."),
    },
    "metadata": {"name": _("Lower-case letters, digits, hyphens and dots. A new name is a new policy.")},
    "spec": {"rules": _("Only one rule runs for a fault: the matching rule with the highest priority.")},
    "rule": {
        "priority": _("A higher number wins over a lower one, across all policies."),
        "mode": _("How far the rule may go. The strictest of installation, cluster and rule applies."),
        "errorCode": _('Xids, as strings: ["48", "79"]. Without errorCode and match: any fault of the node.'),
        "match": _("Faults besides Xids. Any one of its entries is enough."),
        "nodeSelector": _("Only nodes with these labels."),
        "budget": _("The most nodes that the rule may keep isolated: a number, or a share such as 10%."),
        "cooldown": _("How long the rule leaves a node alone after a rescue, for example 2h."),
        "approval": _("People who must approve before work is taken off the node."),
        "actions": _("What is done. The steps always run in the same order, whatever order you write."),
        "onDrainTimeout": _("What to do when pods are left after the time limit of the drain."),
        "verify": _("Verify the node. Repairs are always verified."),
        "validate": _("The validation that the node must pass before it returns."),
        "probation": _("How long the returned node is watched: 24h, auto or none."),
        "escalate": _("Escalate to an operator at the end, with this message."),
    },
    "match": {
        "sxid": _('NVSwitch codes, as strings: ["12028"].'),
        "checks": _('Failed health checks by name: ["pciebw"].'),
        "codes": _('Codes of other kinds: {event: ["XidError"]}.'),
        "kinds": _("Every fault of these kinds."),
        "applicationFaults": _("false: kinds leave out faults that a program caused."),
        "minCount": _("Match only after this many occurrences on the device. Needs within."),
        "within": _("The time in which minCount occurrences must fall, for example 1h."),
    },
    "nodeSelector": {
        "operator": _("any: one label is enough. all: the node needs every label."),
        "labels": _('Node labels: {pool: a100, spare: "true"}.'),
    },
    "approval": {
        "required": _("true: approval required."),
        "approvers": _("1, or 2 for two different people."),
        "expires": _("How long the request stays open, for example 1h. Without it: the cluster's setting."),
    },
    "actions": {"name": _("The name of the action."), "attribute": _("Settings of the action, as strings.")},
}

VALUES: Final[Mapping[str, Words]] = {
    "apiVersion": {document.KCOVER: "", document.KSYUN: _("KCE's keys only.")},
    "kind": {document.RESCUE: "", document.STANDBY: ""},
    "mode": {
        "shadow": _("Only recorded. Nothing is done."),
        "approve": _("By default the node is isolated at once. The other steps need approval."),
        "enforce": _("The portal acts by itself, within the guards."),
    },
    "operator": {"any": _("One label is enough."), "all": _("The node needs every label.")},
    "onDrainTimeout": {
        "hold": _("Hold and escalate to an operator."),
        "proceed": _("Continue without the remaining pods."),
        "force": _("Delete the remaining pods by force."),
    },
    "unCordon": {"true": _("Return the node to service after the repair."), "false": ""},
    "effect": {"NoSchedule": "", "PreferNoSchedule": "", "NoExecute": _("Evicts running pods: needs approval.")},
    "otherwise": {"cordon": _("Cordon the whole node."), "hold": _("Hold and escalate to an operator.")},
    "validate": dict.fromkeys(PROFILES, ""),
    "probation": {"auto": _("The portal chooses the length."), "none": ""},
}

ATTRIBUTES: Final[Words] = {
    "waittime": _("Drain: the time limit. Reboot: the pause between drain and reboot. For example 20min."),
    "unCordon": _("Return the node to service after the repair."),
    "checkpointWait": _("Wait at most this long for the next checkpoint of the jobs."),
    "checkpointQuery": _("A Prometheus query that returns the time of the last checkpoint of {job}."),
    "checkpointSource": _("The source that answers the query."),
    "kueueTogether": _("Drain nodes of one Kueue workload at the same time."),
    "key": _("The key of the taint or label."),
    "value": _("The value. <code> stands for the code of the fault."),
    "effect": _("The effect of the taint."),
    "otherwise": _("What to do if the device cannot be isolated by itself."),
    "channel": _("The notification channel. Without it: all channels that receive news of rescues."),
    "message": _("The text of the message. <code> stands for the code of the fault."),
    "url": _("The address that is called. Put an address with a key into a channel instead."),
    "checks": _("Names of health checks, separated by commas."),
    "vendor": _("The vendor of the repair. Its terms set the date."),
    "queue": _("The queue of the vendor or of your ticket system."),
}


def vocabulary() -> dict[str, Any]:
    """Keys by context, values by key, actions with their attributes, fault kinds, and codes with their meaning."""
    return {
        "keys": {context: _texts(words) for context, words in KEYS.items()}
        | {"codes": {kind: str(fault_names.KINDS.get(kind, kind)) for kind in fault_selector.NAMED_KINDS}},
        "values": {key: _texts(words) for key, words in VALUES.items()},
        "actions": {
            spec.policy.name: {
                "help": gettext(spec.title),
                "attributes": {key: str(ATTRIBUTES.get(key, "")) for key in spec.policy.attributes},
            }
            for spec in actions.in_order()
            if spec.policy is not None
        },
        "kinds": {kind: str(fault_names.KINDS.get(kind, kind)) for kind in fault.INCIDENT_KINDS},
        "codes": {kind: _codes(kind) for kind in fault.NUMERIC_KINDS},
    }


def _texts(words: Words) -> dict[str, str]:
    return {word: str(text) for word, text in words.items()}


def _codes(kind: str) -> dict[str, list[str]]:
    """Each code with what it means and what to do about it."""
    return {
        str(code): [gettext(entry.title) if entry.title else "", gettext(entry.remedy) if entry.remedy else ""]
        for code, entry in catalog.entries(kind).items()
    }


def phrases() -> dict[str, str]:
    """The editor's own words, by their English text."""
    return {
        "Find": gettext("Find"),
        "Replace": pgettext("editor", "Replace"),
        "next": pgettext("editor", "next"),
        "previous": pgettext("editor", "previous"),
        "all": pgettext("editor", "all"),
        "match case": gettext("match case"),
        "regexp": gettext("regexp"),
        "by word": gettext("by word"),
        "replace": pgettext("editor", "replace"),
        "replace all": gettext("replace all"),
        "close": pgettext("editor", "close"),
        "Completions": gettext("Completions"),
        "Diagnostics": pgettext("editor", "Problems"),
        "No diagnostics": gettext("No problems"),
        "Control character": gettext("Control character"),
    }


def rule_modes() -> list[tuple[str, str, str]]:
    """The modes of a rule: value, label, and what the portal does in it."""
    return [(mode, str(Mode(mode).label), str(VALUES["mode"][mode])) for mode in modes.RULE_MODES]
