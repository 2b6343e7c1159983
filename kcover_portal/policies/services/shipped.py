"""The policies that come with the portal: packs of them, one for each system that the portal replaces."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction

from kcover import audit, reasons
from kcover.policy import document, modes
from kcover_portal.ledger import services as ledger
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import revisions
from kcover_portal.policies.services.validation import ParsedPolicy, validate
from kcover_portal.runtime.models import Installation

FOLDER = settings.BASE_DIR / "deploy" / "policies"
DEFAULTS = FOLDER / "defaults.yaml"

# The files of each pack.
PACKS = {
    "kcover": ("kcover.yaml",),
    "konduktor": ("konduktor.yaml",),
    "kce": ("kce.yaml", "kce-global.yaml"),
    "autopilot": ("autopilot.yaml",),
    "nvidia": ("defaults.yaml",),
    "ladder": ("ladder.yaml",),
}
MODES = modes.RULE_MODES
FIRST_MODE = "shadow"
CHANGES = ("new", "changed", "unchanged")

_RULE = re.compile(r"^( +)- priority: ([0-9]+)\n(?: +mode: [a-z]+\n)?", re.MULTILINE)


class UnknownPack(reasons.ExplainedError, LookupError):
    """No pack has this name, or rules have no such mode. ``field``: pack or mode."""

    def __init__(self, field: str, reason: reasons.Reason) -> None:
        super().__init__(reason)
        self.field = field


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack as it would be installed.

    ``installed``: the names of its policies that are active. ``changes``: what an installation would do to each of its
    policies, by name: one of CHANGES.
    """

    name: str
    mode: str
    text: str
    policies: tuple[document.Policy, ...]
    installed: tuple[str, ...]
    changes: Mapping[str, str]


def pack_text(pack: str, mode: str = FIRST_MODE) -> str:
    """Returns the text of a pack with every rule in this mode. Raises UnknownPack."""
    if pack not in PACKS:
        raise UnknownPack("pack", reasons.of("pack_unknown", pack=pack[:60], known=", ".join(PACKS)))
    if mode not in MODES:
        raise UnknownPack("mode", reasons.of("pack_mode_unknown", mode=mode[:60], known=", ".join(MODES)))
    texts = "---\n".join((FOLDER / name).read_text(encoding="utf-8") for name in PACKS[pack])
    own = texts.replace(f"apiVersion: {document.KSYUN}", f"apiVersion: {document.KCOVER}")  # KCE has no modes
    return _RULE.sub(rf"\1- priority: \2\n\1  mode: {mode}\n", own)


def packs(mode: str = FIRST_MODE, *, names: Collection[str] = tuple(PACKS)) -> list[Pack]:
    """Returns packs as they would be installed in a mode. Raises UnknownPack."""
    active = {row.policy.name: row.document for row in queries.in_force(queries.RESCUE)}
    found = []
    for name in names:
        text = pack_text(name, mode)
        parsed = validate(text).policies
        policies = tuple(item.policy for item in parsed if isinstance(item.policy, document.Policy))
        installed = tuple(one.name for one in policies if one.name in active)
        changes = {item.policy.name: _change(active.get(item.policy.name), item.document) for item in parsed}
        found.append(Pack(name, mode, text, policies, installed, changes))
    return found


def _change(before: object, after: object) -> str:
    return "new" if before is None else "unchanged" if before == after else "changed"


def install_pack(pack: str, mode: str = FIRST_MODE, *, author: str, reason: str, now: datetime) -> list[Policy]:
    """Publishes the policies of a pack with every rule in this mode and returns them, changed or not.

    Raises UnknownPack, or InvalidPolicies if a rule names a channel or source that does not exist.
    """
    text, because = pack_text(pack, mode), reasons.of("policy_from_pack", pack=pack)
    return revisions.apply(text, author=author, reason=reason, because=because, now=now)


def dismiss_first_choice(*, author: str, now: datetime) -> None:
    """Notes that an admin needs no page that asks for a first pack. Repeating it changes nothing."""
    with transaction.atomic():
        row, _ = Installation.objects.select_for_update().get_or_create(pk=1)
        if row.first_choice_dismissed_at is None:
            row.first_choice_dismissed_at = now
            row.save(update_fields=["first_choice_dismissed_at"])
            ledger.record("", audit.FirstChoiceDismissed(), actor=author, now=now)


def install_defaults(*, author: str, reason: str, now: datetime, update: bool = False) -> list[Policy]:
    """Publishes the built-in policies that were never installed and returns them.

    ``update``: publishes all of them, as new revisions where they differ. Raises InvalidPolicies if a rule
    names a channel or source that does not exist.
    """
    text = DEFAULTS.read_text(encoding="utf-8") if update else "---\n".join(parsed.text for parsed in _missing())
    because = reasons.of("policy_built_in")
    return revisions.apply(text, author=author, reason=reason, because=because, now=now) if text else []


def _missing() -> list[ParsedPolicy]:
    shipped = validate(DEFAULTS.read_bytes()).policies
    known = set(Policy.objects.filter(name__in=[parsed.policy.name for parsed in shipped]).values_list("kind", "name"))
    return [parsed for parsed in shipped if parsed.key not in known]
