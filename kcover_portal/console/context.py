"""Template context of every page: navigation, rights, mode banner, palette, home page."""

from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise, SimpleLazyObject
from django.utils.translation import gettext_lazy as _

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import action_labels, home_pages
from kcover_portal.console.navigation import places
from kcover_portal.console.reads import mode_banner
from kcover_portal.console.reads.bulk_actions import NODE_VERBS
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

ACTS_OF: Final[dict[str, tuple[str, ...]]] = {
    "nodes": NODE_VERBS,
    "approvals": ("approve", "reject"),
    "rescues": ("cancel", "retry", "skip"),
}


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """A palette entry: a page, or with ``asks`` an action that opens a dialog. ``words`` are search terms."""

    label: str | Promise
    icon: str
    href: str
    asks: bool = False
    words: str = ""


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
        context["banner"] = SimpleLazyObject(lambda: mode_banner.of(accounts.scope(user), now=timezone.now()))
        context["home_choice"] = SimpleLazyObject(lambda: home_pages.choice(user, request))
        context["waiting"] = SimpleLazyObject(lambda: waiting(user))
    return context


def palette(user: User, mode: str) -> list[PaletteEntry]:
    """The entries of the command palette: pages first, then actions."""
    found = [
        PaletteEntry(place.label, place.icon, reverse(f"console:{place.page}"), words=_words(place.page))
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
    if rights(user).pause:  # also while it is paused: the page may be older than the end of the pause
        found.append(PaletteEntry(_("Pause everything"), "player-pause", reverse("console:pause"), True))
        if mode == "paused":
            found.append(PaletteEntry(_("Resume"), "player-play", reverse("console:resume"), True))
    found += [
        PaletteEntry(label, icon, reverse(page), asks=True, words=words)
        for verb, page, icon, label, words in (
            (Verb.MAINTAIN, "console:maintenance-new", "tool", _("Schedule maintenance"), "maintenance window"),
            (Verb.CHECK, "console:validation-new", "shield-check", _("Validate nodes"), "validate validation"),
            (Verb.CHECK, "console:check-run-new", "list-check", _("Run checks"), "checks"),
        )
        if accounts.scope(user, verb).has_clusters
    ]
    if rights(user).add_clusters:
        words = "kubeconfig register new cluster"
        found.append(PaletteEntry(_("Add a cluster"), "plus", reverse("console:cluster-new"), words=words))
    if accounts.may(user, Verb.WRITE_POLICIES, None):
        found.append(PaletteEntry(_("New policy"), "plus", reverse("console:policy-new"), words="policy"))
    return found


def _words(page: str) -> str:
    """What else people write for a page: the acts that they do there, in English and in their language."""
    verbs = ACTS_OF.get(page, ())
    return " ".join((page, *verbs, *(str(action_labels.verb(verb).label) for verb in verbs)))


def rights(user: User) -> Rights:
    """The verbs that the person has in at least one cluster; pausing everything requires the role for all clusters."""
    return Rights(
        operate=accounts.may_somewhere(user, Verb.REPAIR),
        approve=accounts.may_somewhere(user, Verb.APPROVE),
        admin=accounts.may(user, Verb.WRITE_POLICIES, None),
        pause=accounts.may(user, Verb.PAUSE, None),
        add_clusters=accounts.may(user, Verb.CONFIGURE, None),
    )


def waiting(user: User) -> dict[str, int]:
    """The number of rescues that need attention, by navigation entry."""
    return accounts.visible(user, Rescue.objects.all()).aggregate(
        approvals=Count("pk", filter=needs_person.AWAITING_APPROVAL),
        rescues=Count("pk", filter=needs_person.LEFT_TO_PEOPLE),
    )
