"""Chances that were estimated from a history of faults, and what to do about nodes that fail repeatedly."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "risk_of_node": _(
        "{faults} faults in {days} d. Within the next {days} d, {permille} in 1,000 nodes with such a history have a "
        "fault, against {base} in 1,000 of all nodes. Basis: {windows} periods of this fleet and a public trace."
    ),
    "risk_of_gpu": _(
        "{faults} faults in {days} d. Within the next {days} d, {permille} in 1,000 GPUs with such a history have a "
        "fault, against {base} in 1,000 of all GPUs. Basis: {windows} periods of this fleet and a public trace."
    ),
    "lemon_validate": _("{faults} faults in {days} d: run a full validation before the node takes work again."),
    "lemon_propose": _(
        "{faults} faults in {days} d: probably a lemon. Decide whether to take the node out of service."
    ),
    "lemon_hold": _("{faults} faults in {days} d: a lemon. Keep the node out of service and open a repair."),
}
