"""The built-in policies, in shadow mode. They are installed only on request."""

from datetime import datetime

from django.conf import settings

from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import revisions
from kcover_portal.policies.services.validation import Parsed, validate

DEFAULTS = settings.BASE_DIR / "deploy" / "policies" / "defaults.yaml"


def missing_defaults() -> list[str]:
    """Returns the names of built-in policies that were never installed here. A disabled one is not missing."""
    return [parsed.policy.name for parsed in _missing()]


def install_defaults(*, author: str, reason: str, now: datetime, update: bool = False) -> list[Policy]:
    """Publishes the built-in policies that were never installed and returns them.

    ``update``: publishes all of them, as new revisions where they differ. Raises Invalid if this installation lacks a
    step that they need.
    """
    if update:
        return revisions.apply(DEFAULTS.read_bytes(), author=author, reason=reason, now=now)
    text = "---\n".join(parsed.text for parsed in _missing())
    return revisions.apply(text, author=author, reason=reason, now=now) if text else []


def _missing() -> list[Parsed]:
    shipped = validate(DEFAULTS.read_bytes()).policies
    known = set(Policy.objects.filter(name__in=[parsed.policy.name for parsed in shipped]).values_list("kind", "name"))
    return [parsed for parsed in shipped if parsed.key not in known]
