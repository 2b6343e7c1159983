"""The look of the states of pair tests: of plans, of single tests, and of the verdict on a node."""

from typing import Final

from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover_portal.console.badge import Badge

TABLES: Final = {
    "pair_plan": {
        "running": Badge(_("Running"), "heal", "refresh"),
        "finished": Badge(_("Finished"), "ok", "circle-check"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "pair_test": {
        "pending": Badge(_("Pending"), "off", "clock"),
        "running": Badge(_("Running"), "heal", "refresh"),
        "passed": Badge(_("Passed"), "ok", "circle-check"),
        "failed": Badge(_("Failed"), "bad", "circle-x"),
        "error": Badge(_("Not measured"), "ask", "alert-circle"),
        "cancelled": Badge(_("Cancelled"), "off", "ban"),
    },
    "pair_verdict": {
        "": Badge("–", "off", "clock"),
        "slow": Badge(pgettext_lazy("preflight", "Slow"), "bad", "trending-down"),
        "fabric": Badge(_("Slow leaf switch"), "bad", "trending-down"),
        "inconclusive": Badge(_("Inconclusive"), "ask", "help"),
        "clear": Badge(_("No problems"), "ok", "circle-check"),
    },
}
