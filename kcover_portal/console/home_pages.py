"""The page that a person chose as their home: which pages can be one, and whether the person may still see theirs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from django.http import Http404, HttpRequest, QueryDict
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import Refused
from kcover_portal.console import lists, report_choice
from kcover_portal.console.list_query import one_spelling
from kcover_portal.console.navigation import NAVIGATION, places
from kcover_portal.console.reads import fleet_map, saved_views, wall

MAX_STORED: Final = 1100  # characters, as in the database
OVERVIEW: Final = "overview"
_FURTHER: Final[Mapping[str, str | Promise]] = {  # pages that are not in the navigation
    "occurrences": _("Occurrences"),
    "decisions": _("Decisions"),
    "validations": _("Validations"),
    "map-table": _("Fleet map"),
    "wall": _("Wallboard"),
}
TITLES: Final[Mapping[str, str | Promise]] = {**{place.page: place.label for place in NAVIGATION}, **_FURTHER}
_LISTS: Final = {page.removeprefix("console:"): listing for listing, page in saved_views.PAGES.items()}


@dataclass(frozen=True, slots=True)
class HomePage:
    """A page of the console with its query. The address is built from its name, so it cannot leave the portal."""

    name: str = OVERVIEW
    query: str = ""

    @property
    def stored(self) -> str:
        """The form in the database; "" is the overview."""
        page = f"{self.name}?{self.query}" if self.query else self.name
        return "" if page == OVERVIEW else page

    @property
    def address(self) -> str:
        path = reverse(f"console:{self.name}")
        return f"{path}?{self.query}" if self.query else path

    @property
    def title(self) -> str | Promise:
        return TITLES[self.name]


@dataclass(frozen=True, slots=True)
class HomeChoice:
    """What the menu of a page offers. ``address``: of the page, as the button sends it; ``chosen``: it is the home."""

    address: str
    chosen: bool


def stored(user: User) -> HomePage:
    """The page that the person chose; the overview if they chose none, or if there is no such page any more."""
    name, _mark, query = user.home.partition("?")
    return HomePage(name, query) if name in TITLES else HomePage()


def choice(user: User, request: HttpRequest) -> HomeChoice | None:
    """What the menu offers on this page, without a query of the database; None on a page that cannot be a home."""
    name = (request.resolver_match.url_name or "") if request.resolver_match else ""
    name = OVERVIEW if name == "home" else name
    if name not in TITLES:
        return None
    page = HomePage(name, _kept(name, request.GET))
    return HomeChoice(page.address, page == stored(user))


def read(user: User, address: str) -> HomePage:
    """Reads an address of the portal. Raises Refused if no home can be there, or not for this person."""
    path, _mark, query = address.partition("?")
    try:
        found = resolve(path)
    except Resolver404:
        found = None
    name = (found.url_name or "") if found is not None and found.namespace == "console" else ""
    if name not in TITLES or "\0" in unquote(query):  # PostgreSQL has no text with NUL
        raise Refused(reasons.of("home_page_unknown", address=address[:200]))
    page = HomePage(name, _kept(name, QueryDict(query.partition("#")[0])))
    if len(page.stored) > MAX_STORED:
        raise Refused(reasons.of("view_query_long", most=MAX_STORED))
    if not is_open_to(user, page):
        raise Refused(reasons.of("home_page_closed", page=page.address[:200]))
    return page


def open_pages(user: User) -> list[HomePage]:
    """The pages without a query that the person can choose, in the order of the navigation."""
    return [page for page in map(HomePage, TITLES) if _may_open(user, page.name)]


def is_open_to(user: User, page: HomePage) -> bool:
    """Returns whether the person may see the page, and each part of its query still names something."""
    given = QueryDict(page.query)
    clusters = {name for name in given.getlist("cluster") if name}
    if clusters and accounts.scope(user).clusters().filter(name__in=clusters).count() < len(clusters):
        return False
    return _may_open(user, page.name) and _CHECKS.get(page.name, _check_list)(user, page.name, given)


def _may_open(user: User, name: str) -> bool:
    return name in _FURTHER or any(place.page == name for place in places(user))


def _kept(name: str, given: QueryDict) -> str:
    """The part of the query that belongs to a home."""
    if name in _LISTS:
        return one_spelling(given) or ("view=none" if "view" in given else "")
    return one_spelling(given) if name in _CHECKS else ""


def _check_list(user: User, name: str, given: QueryDict) -> bool:
    return name not in _LISTS or not lists.find(lists.LISTINGS[_LISTS[name]], user, given).problems


def _check_report(user: User, _name: str, given: QueryDict) -> bool:
    try:
        return not report_choice.read(given, accounts.scope(user), now=timezone.now()).error
    except Http404:
        return False


def _check_map(_user: User, _name: str, given: QueryDict) -> bool:
    return not fleet_map.choice({name: str(given[name]) for name in given}).problems


def _check_wall(user: User, _name: str, given: QueryDict) -> bool:
    return wall.part(accounts.scope(user), {name: str(given[name]) for name in given}) is not None


_CHECKS: Final[Mapping[str, Callable[[User, str, QueryDict], bool]]] = {
    "reports": _check_report,
    "map-table": _check_map,
    "wall": _check_wall,
}
