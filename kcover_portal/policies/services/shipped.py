"""The built-in policies, in shadow mode; only a person installs them."""

from datetime import datetime

from django.conf import settings

from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import revisions
from kcover_portal.policies.services.validation import Parsed, validate

DEFAULTS = settings.BASE_DIR / "deploy" / "policies" / "defaults.yaml"


def missing_defaults() -> list[str]:
    """The names of the built-in policies that were never installed here; a disabled one is not missing."""
    return [one.policy.name for one in _missing()]


def install_defaults(*, author: str, reason: str, now: datetime, update: bool = False) -> list[Policy]:
    """Puts the shipped policies in force that never were; returns what was put in force.

    ``update``: all of them, whatever was made of them here, as new revisions where they differ. Raises Invalid where
    this installation lacks a step that they need.
    """
    if update:
        return revisions.apply(DEFAULTS.read_bytes(), author=author, reason=reason, now=now)
    text = "---\n".join(one.text for one in _missing())
    return revisions.apply(text, author=author, reason=reason, now=now) if text else []


def _missing() -> list[Parsed]:
    shipped = validate(DEFAULTS.read_bytes()).policies
    known = set(Policy.objects.filter(name__in=[one.policy.name for one in shipped]).values_list("kind", "name"))
    return [one for one in shipped if one.key not in known]
