"""The validation profiles in force: the built-in ones, with the changes that admins made."""

import logging
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover.validation import profiles
from kcover.values.quote import short_text
from kcover_portal.checks.models import ValidationProfile
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError, FieldErrors

log = logging.getLogger(__name__)


def in_force() -> dict[str, profiles.Profile]:
    """Every profile by its name. One query."""
    changed = dict(ValidationProfile.objects.values_list("name", "document"))
    return {
        name: parsed(name, changed[name]) if name in changed else default for name, default in profiles.DEFAULTS.items()
    }


def named(name: str) -> profiles.Profile:
    """The profile of this name. Raises FieldError for an unknown name."""
    if name not in profiles.DEFAULTS:
        known = ", ".join(profiles.DEFAULTS)
        raise FieldError("profile", reasons.of("profile_unknown", profile=short_text(name), known=known))
    row = ValidationProfile.objects.filter(name=name).first()
    return parsed(name, row.document) if row is not None else profiles.DEFAULTS[name]


def parsed(name: str, document: Mapping[str, object]) -> profiles.Profile:
    """The stored profile; the built-in one if another version of the portal has stored what this one cannot read."""
    try:
        return profiles.parse(document)
    except profiles.ProfileInvalid as invalid:
        log.warning("the stored profile %s cannot be read, the built-in one is used: %s", name, invalid.problems)
        return profiles.DEFAULTS[name]


def change(name: str, document: Mapping[str, object] | None, *, actor: str, reason: str, now: datetime) -> None:
    """Replaces what the profile asks for; None: with the default. Validations that are open keep their copy.

    Raises FieldErrors with the path of each problem, FieldError for an unknown name.
    """
    try:
        wanted = profiles.parse(document) if document is not None else None
    except profiles.ProfileInvalid as invalid:
        raise FieldErrors([FieldError(path, why) for path, why in invalid.problems]) from invalid
    with transaction.atomic():
        before = named(name)
        rows = ValidationProfile.objects.filter(name=name)
        if wanted is None:
            rows.delete()
        else:
            fields = {"document": wanted.to_json(), "changed_by": actor, "changed_at": now}
            ValidationProfile.objects.update_or_create(name=name, defaults=fields)
        after = wanted or profiles.DEFAULTS[name]
        if after != before:
            document_change = audit.Change(before=before.to_json(), after=after.to_json())
            act = audit.ProfileChanged(profile=name, document=document_change, reason=reason)
            ledger.record("", act, actor=actor, now=now)
            doorbell.publish("checks", 0)
