"""The entries of the console's navigation, and which of them a person may open."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb

# The groups of the navigation.
OPERATE, FLEET, CONFIGURE = _("Operate"), _("Fleet"), _("Configure")
ADMIN = pgettext_lazy("navigation", "Admin")


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An entry of the navigation; ``key`` is the letter after g in the keyboard shortcut.

    ``pinned``: it is in the bar of a phone. The others are in the sheet that *More* opens.
    """

    page: str
    label: str | Promise
    icon: str
    key: str
    views: tuple[str, ...]
    admin: bool = False
    everywhere: bool = False  # only for admins of everything
    group: str | Promise = OPERATE
    pinned: bool = False


PREFLIGHT_PAGES = (
    *("preflight-runs", "preflight-run"),
    *("preflight-plans", "preflight-plan", "preflight-plan-new", "preflight-plan-cancel"),
)
# The entries in their order, those of a group together.
NAVIGATION = (
    NavigationItem("overview", _("Overview"), "dashboard", "o", ("overview", "home"), pinned=True),
    NavigationItem(
        "incidents",
        _("Incidents"),
        "alert-triangle",
        "x",
        ("incidents", "incident", "occurrences", "decisions", "read-log"),
        pinned=True,
    ),
    NavigationItem(
        "rescues", _("Rescues"), "heart-rate-monitor", "r", ("rescues", "rescue", "rescue-act"), pinned=True
    ),
    NavigationItem("approvals", _("Approvals"), "user", "a", ("approvals", "approval-link"), pinned=True),
    NavigationItem("jobs", _("Jobs"), "stack", "j", ("jobs", "job-act")),
    NavigationItem("safety", _("Safety"), "shield", "f", ("safety", "safety-guard", "safety-mode", "maintenance-new")),
    NavigationItem("reports", _("Reports"), "chart-bar", "t", ("reports", "report-price", "report-lemons")),
    NavigationItem("nodes", _("Nodes"), "server", "n", ("nodes", "node", "node-act"), group=FLEET),
    NavigationItem(
        "parts", pgettext_lazy("hardware", "Parts"), "cpu", "h", ("parts", "part", "part-review"), group=FLEET
    ),
    NavigationItem(
        "repairs",
        _("Repairs"),
        "tool",
        "d",
        ("repairs", "repair", "repair-new", "repair-change", "repair-act", "repair-terms"),
        group=FLEET,
    ),
    NavigationItem("standbys", _("Standbys"), "switch-horizontal", "b", ("standbys",), group=FLEET),
    NavigationItem(
        "check-runs",
        _("Checks"),
        "list-check",
        "c",
        (
            *("check-runs", "check-run", "check-run-new"),
            *("validations", "validation", "validation-new", "validation-cancel", "validation-profile"),
        ),
        group=FLEET,
    ),
    NavigationItem("preflight-runs", _("Preflight"), "binoculars", "e", PREFLIGHT_PAGES, group=FLEET),
    NavigationItem(
        "policies",
        pgettext_lazy("rules", "Policies"),
        "file-text",
        "p",
        ("policies", "policy", "policy-edit"),
        group=CONFIGURE,
    ),
    NavigationItem("sources", _("Sources"), "plug", "u", ("sources", "source", "source-new"), group=CONFIGURE),
    NavigationItem(
        "notifications",
        _("Notifications"),
        "bell",
        "m",
        (
            *("notifications", "channel-new", "channel", "channel-delete", "route-new", "route-delete"),
            *("namespace-route-new", "namespace-route-delete"),
        ),
        everywhere=True,
        group=CONFIGURE,
    ),
    NavigationItem("audit", _("Audit log"), "clipboard-list", "l", ("audit", "audit-sinks", "audit-sink"), group=ADMIN),
    NavigationItem(
        "system", _("System"), "activity", "s", ("system", "cluster-new", "cluster-next", "cluster-test"), group=ADMIN
    ),
    NavigationItem(
        "access", _("Access"), "key", "w", ("access", "access-token", "access-user"), admin=True, group=ADMIN
    ),
)


def places(user: User) -> list[NavigationItem]:
    """The navigation entries that the person may open, by group."""
    admin, everywhere = accounts.may_somewhere(user, Verb.ADMINISTER), accounts.may(user, Verb.WRITE_CHANNELS, None)
    return [place for place in NAVIGATION if (admin or not place.admin) and (everywhere or not place.everywhere)]
