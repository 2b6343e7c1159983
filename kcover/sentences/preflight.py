"""Preflight runs."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "preflight_waiting": _("{received} of {expected} reports have arrived."),
    "preflight_expired": _(
        "Only {received} of {expected} reports arrived within {within}, from {nodes}. They get no verdict."
    ),
    "preflight_abnormal": _("{node} failed {checks}."),
    "preflight_slow": _("{node} failed in each of the {slots} slots that count."),
    "preflight_suspects": _("One of {nodes} is slow. A run of two nodes cannot show which node is slow."),
    "preflight_slots": _("{node} ran {slots} of {expected} slots, too few to call it slow."),
    "preflight_size": _(
        "{node} reports a run of {size} nodes, not {before}. The {received} earlier reports are dropped."
    ),
    "preflight_again": _("{node} reported again after the verdict. A new run begins."),
}
