"""What the rules of each pack say about the faults so far, and whether the first choice of a pack is still open."""

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.conf import settings

from kcover.decisions import match
from kcover_portal.accounts import queries as accounts
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services
from kcover_portal.policies.models import Policy
from kcover_portal.runtime import queries as runtime

MAX_FAULTS = 500  # the latest; a try of the pack reads all of 90 days
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Preview:
    """A pack, and how many of ``faults`` its rules match.

    ``answers``: the names of a rule's actions, and the number of faults that it matches, the most frequent first.
    ``persons``: faults for which a rule calls a person.
    """

    pack: services.Pack
    faults: int
    matched: int
    persons: int
    answers: tuple[tuple[str, int], ...]


def is_first_choice_open() -> bool:
    """Returns whether this portal never had a policy, is no demo, and no admin has dismissed the choice of a pack."""
    if settings.KCOVER_DEMO_URL or Policy.objects.exists():
        return False
    return runtime.installation().first_choice_dismissed_at is None


def previews(who: accounts.Principal) -> list[Preview]:
    """Returns what each pack says about the latest faults that ``who`` may see. Modes and guards are not evaluated."""
    rows = accounts.visible(who, Incident.objects.filter(node__isnull=False))
    latest = list(rows.select_related("node").order_by("-pk")[:MAX_FAULTS])
    return [_preview(pack, latest) for pack in services.packs()]


def _preview(pack: services.Pack, faults: Sequence[Incident]) -> Preview:
    rules = [
        match.Candidate(policy=policy.name, revision=0, created_at=_EPOCH, rule=rule)
        for policy in pack.policies
        for rule in policy.rules
    ]
    answers: collections.Counter[str] = collections.Counter()
    matched = persons = 0
    for row in faults:
        labels = row.node.labels if row.node is not None else {}
        found = match.match(
            rules,
            kind=row.kind,
            code=row.code,
            cause=row.cause,
            labels=labels,
            application=row.is_user_fault,
            harmless=row.is_harmless,
        ).candidate
        if found is None:
            continue
        matched += 1
        persons += found.rule.escalate is not None
        if found.rule.actions:
            answers[", ".join(action.name for action in found.rule.actions)] += 1
    return Preview(pack, len(faults), matched, persons, tuple(answers.most_common()))
