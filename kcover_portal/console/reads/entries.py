"""Audit entries for people: a title, and why it was done. An entry with an unknown verb is shown as it is."""

import re
from collections.abc import Sequence
from typing import Final

from kcover import audit
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import localization

HASH: Final = re.compile(r"\b[0-9a-f]{64}\b")  # a SHA-256, which nobody reads out; its own place shows it whole
SHOWN_OF_HASH: Final = 12


def title(entry: Entry) -> str:
    """The act of an entry, as a title."""
    act = audit.known_act(entry)
    return localization.say(act.title()) if act is not None else entry.verb


def why(entry: Entry) -> str:
    """A person's own words, or why the portal acted; for a refused request also what was requested."""
    act = audit.known_act(entry)
    if act is None:
        return ""
    explanation = localization.say(act.explanation) if act.explanation is not None else ""
    if isinstance(act, audit.RequestRefused):
        return f"{', '.join(act.requested)}: {explanation}"
    return act.own_words or HASH.sub(lambda found: f"{found[0][:SHOWN_OF_HASH]}…", explanation)


def is_by_link(entry: Entry) -> bool:
    """Returns whether the entry is an answer that a person gave by an approval link."""
    act = audit.known_act(entry)
    return isinstance(act, audit.Vote) and act.via == "link"


def of_people(entries: Sequence[Entry], *, rescue: int) -> list[Entry]:
    """The entries of a rescue that are about the rescue as a whole, or not made by its worker."""
    return [
        entry
        for entry in entries
        if entry.actor != f"rescue {rescue}" or isinstance(audit.known_act(entry), audit.RescueAct)
    ]
