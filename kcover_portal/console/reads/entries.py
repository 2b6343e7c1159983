"""Audit entries as people read them: a title, and why it was done. An entry of an unknown verb is shown as it is."""

from collections.abc import Sequence

from kcover import audit
from kcover_portal.console import wording
from kcover_portal.ledger.models import Entry


def title(entry: Entry) -> str:
    """What was done."""
    act = _act(entry)
    return wording.say(act.title()) if act is not None else entry.verb


def why(entry: Entry) -> str:
    """What a person wrote, or why the portal acted; of a refused request also what was requested."""
    act = _act(entry)
    if act is None:
        return ""
    explanation = wording.say(act.explanation) if act.explanation is not None else ""
    if isinstance(act, audit.RequestRefused):
        return f"{', '.join(act.requested)}: {explanation}"
    own_words = "" if entry.actor.startswith("policy:") else act.own_words  # a rule's are the decision's reasons
    return own_words or explanation


def of_people(entries: Sequence[Entry], *, rescue: int) -> list[Entry]:
    """Those of a rescue's entries that are about the rescue as a whole, or not by its worker."""
    return [entry for entry in entries if entry.actor != f"rescue {rescue}" or isinstance(_act(entry), audit.RescueAct)]


def _act(entry: Entry) -> audit.Act | None:
    try:
        return audit.from_entry(entry)
    except audit.UnknownVerb:
        return None
