"""Template context of every page: navigation, rights, mode banner, palette, home page."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.policy import modes
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import home_pages, presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.navigation import places
from kcover_portal.console.reads import alarms
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from kcover_portal.runtime import queries as runtime


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """A palette entry: a page, or with ``asks`` an action that opens a dialog. ``words`` are search terms."""

    label: str | Promise
    icon: str
    href: str
    asks: bool = False
    words: str = ""


@dataclass(frozen=True, slots=True)
class Banner:
    """The mode everywhere and in clusters that differ, and the alarms that block automation now."""

    mode: str
    reason: str
    differing: tuple[tuple[str, str, str], ...]
    alarms: tuple[alarms.Alarm, ...]

    @property
    def look(self) -> Badge:
        return presentation.of("mode", self.mode)


@dataclass(frozen=True, slots=True)
class Rights:
    """The verbs that the person has in at least one cluster; pages of one cluster check that cluster again."""

    operate: bool
    approve: bool
    admin: bool
    pause: bool
    add_clusters: bool


def shared(request: HttpRequest) -> dict[str, Any]:
    """The context of every page and fragment; lazy, so it costs no query until a template uses it."""
    fragment = bool(getattr(request, "htmx", False)) and request.method == "GET"
    context: dict[str, Any] = {
        "base": "console/fragment.html" if fragment else "console/base.html",
        "here": request.resolver_match.url_name if request.resolver_match else "",
        "demo": settings.KCOVER_DEMO_URL,
        "languages": settings.LANGUAGES,
    }
    user = getattr(request, "user", None)
    if isinstance(user, User) and user.is_authenticated:
        context["rights"] = SimpleLazyObject(lambda: rights(user))
        context["places"] = SimpleLazyObject(lambda: places(user))
        context["palette"] = SimpleLazyObject(lambda: palette(user, context["banner"].mode))
        context["banner"] = SimpleLazyObject(lambda: banner(accounts.scope(user)))
        context["home_choice"] = SimpleLazyObject(lambda: home_pages.choice(user, request))
        context["waiting"] = SimpleLazyObject(lambda: waiting(user))
    return context


def palette(user: User, mode: str) -> list[PaletteEntry]:
    """The entries of the command palette: pages first, then actions."""
    found = [
        PaletteEntry(place.label, place.icon, reverse(f"console:{place.page}"), words=place.page)
        for place in places(user)
    ]
    found += [
        PaletteEntry(_("Occurrences"), "notes", reverse("console:occurrences"), words="events occurrences xid"),
        PaletteEntry(_("Decisions"), "list-check", reverse("console:decisions"), words="decisions"),
        PaletteEntry(_("Analyse a log"), "upload", reverse("console:read-log"), words="paste dmesg log xid"),
        PaletteEntry(_("Wallboard"), "device-desktop", reverse("console:wall"), words="wall screen tv kiosk"),
        PaletteEntry(_("Your account"), "user-circle", reverse("console:account"), words="password sessions"),
        PaletteEntry(_("API"), "api", reverse("api:docs"), words="swagger rest"),
    ]
    if rights(user).pause:
        verb = "resume" if mode == "paused" else "pause"
        label = _("Resume") if mode == "paused" else _("Pause everything")
        found.append(
            PaletteEntry(label, f"player-{'play' if verb == 'resume' else 'pause'}", reverse(f"console:{verb}"), True)
        )
    if rights(user).add_clusters:
        words = "kubeconfig register new cluster"
        found.append(PaletteEntry(_("Add a cluster"), "plus", reverse("console:cluster-new"), words=words))
    if accounts.may(user, Verb.WRITE_POLICIES, None):
        found.append(PaletteEntry(_("New policy"), "plus", reverse("console:policy-new"), words="policy"))
    return found


def rights(user: User) -> Rights:
    """The verbs that the person has in at least one cluster; pausing everything requires the role for all clusters."""
    return Rights(
        operate=accounts.may_somewhere(user, Verb.REPAIR),
        approve=accounts.may_somewhere(user, Verb.APPROVE),
        admin=accounts.may(user, Verb.WRITE_POLICIES, None),
        pause=accounts.may(user, Verb.PAUSE, None),
        add_clusters=accounts.may(user, Verb.CONFIGURE, None),
    )


def banner(seen: accounts.Scope) -> Banner:
    """The global mode, the clusters that are stricter, and the current alarms."""
    installation = runtime.installation()
    mode = modes.strictest(settings.KCOVER_MODE, installation.mode)
    clusters = list(seen.clusters().order_by("name"))
    differing = tuple(
        (cluster.name, fleet.own_mode(cluster), _why(cluster))
        for cluster in clusters
        if cluster.acted_on_by or modes.strictest(mode, fleet.own_mode(cluster)) != mode
    )
    present = tuple(alarms.alarms(seen, [cluster for cluster in clusters if cluster in seen], now=timezone.now()))
    return Banner(mode, installation.reason if installation.mode == mode else "", differing, present)


def _why(cluster: Cluster) -> str:
    """The reasons why a cluster's mode is stricter: its pause, or the other system or portal that acts there."""
    why = [cluster.pause_reason]
    if cluster.acted_on_by:
        why.append(localization.say(reasons.of("acted_on_by", system=cluster.acted_on_by)))
    if cluster.action_lease and not fleet.holds_lease(cluster.acts_until):
        holder = cluster.lease_holder
        missing = reasons.of("lease_elsewhere", holder=holder) if holder else reasons.of("lease_missing")
        why.append(localization.say(missing))
    return " ".join(text for text in why if text)


def waiting(user: User) -> dict[str, int]:
    """The number of rescues that need attention, by navigation entry."""
    return accounts.visible(user, Rescue.objects.all()).aggregate(
        approvals=Count("pk", filter=needs_person.AWAITING_APPROVAL),
        rescues=Count("pk", filter=needs_person.LEFT_TO_PEOPLE),
    )
