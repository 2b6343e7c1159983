"""The look of a feature's rights, in the test of the access to a cluster."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from kcover_portal.console.badge import Badge

BADGES: Final = {
    "required": Badge(_("Missing, required"), "bad", "alert-circle"),
    "lacking": Badge(_("Missing"), "ask", "alert-triangle"),
    "optional": Badge(_("Missing, optional"), "off", "circle-minus"),
    "unknown": Badge(_("No answer in time"), "off", "help"),
}
