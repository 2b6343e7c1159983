"""The tabs of the list of rescues: selections that people look for."""

from dataclasses import dataclass

from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover_portal.rescue.queries import needs_person


@dataclass(frozen=True, slots=True)
class Tab:
    """A selection of the rescues; ``rest`` is the same filter over REST."""

    name: str
    label: str | Promise
    where: Q
    rest: str


TABS = (
    Tab("all", pgettext_lazy("rescues", "All"), Q(), ""),
    Tab("active", _("Active"), Q(state__in=("waiting", "running")), "state=waiting&state=running"),
    Tab("approval", _("Awaiting approval"), needs_person.AWAITING_APPROVAL, "needs_person=approval"),
    Tab("people", _("Needs attention"), needs_person.LEFT_TO_PEOPLE, "needs_person=people"),
    Tab("held", _("On hold"), needs_person.STATUSES["held"], "status=held"),
    Tab("succeeded", _("Succeeded"), Q(state="succeeded"), "state=succeeded"),
    Tab("verified", _("Verified healthy"), Q(verified=True), "verified=true"),
    Tab("failed", _("Failed"), Q(state="failed"), "state=failed"),
    Tab("cancelled", _("Cancelled"), Q(state="cancelled"), "state=cancelled"),
)
