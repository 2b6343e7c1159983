"""Saves, changes and deletes views of lists. Only what others see of it is in the audit log."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import SavedView, SharedFirstView, User, Verb
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.ledger import services as ledger

# Returns the query of a list in its one spelling. Raises Refused for an unknown list or parameter.
Check = Callable[[User, str, str], str]
_checks: list[Check] = []
MAX_VIEWS = 50  # of one person
MAX_QUERY = 1000  # characters, as in the database


def check_with(check: Check) -> None:
    """Registers the function that knows the lists. The app that owns them calls it at start."""
    _checks[:] = [check]


def checked_query(user: User, listing: str, query: str) -> str:
    """Returns the query in the spelling that views have. Raises Refused."""
    return _checks[0](user, listing, query)


def check_name(user: User, listing: str, name: str) -> None:
    """Raises Refused if the person has a view of this name, or as many views as one may have."""
    own = SavedView.objects.filter(user=user)
    _check_room(own)
    _check_free(own.filter(listing=listing), name)


def may_share(user: User) -> bool:
    """Returns whether the person may act in all clusters: everybody can read the names in a shared query."""
    return queries.may(user, Verb.REPAIR, None)


def save(
    user: User, *, listing: str, name: str, query: str, shared: bool = False, opens_first: bool = False, now: datetime
) -> SavedView:
    """Keeps a query of a list. Raises Refused."""
    with transaction.atomic():
        _check_room(_own(user))
        if len(query) > MAX_QUERY:
            raise Refused(reasons.of("view_query_long", most=MAX_QUERY))
        view = SavedView(user=user, listing=listing, query=query, created_at=now)
        _write(view, name=name, shared=shared, opens_first=opens_first, now=now)
    return view


def change(view: SavedView, *, name: str, shared: bool, opens_first: bool, now: datetime) -> None:
    """Renames a view, shares it or makes the list open with it. Raises Refused."""
    with transaction.atomic():
        _own(view.user)
        _write(view, name=name, shared=shared, opens_first=opens_first, now=now)


def delete(view: SavedView, *, now: datetime) -> None:
    with transaction.atomic():
        view.delete()
        if view.shared:
            ledger.record("", audit.ViewWithdrawn(**_of(view)), actor=queries.actor(view.user), now=now)


def withdraw(view: SavedView, *, actor: str, now: datetime) -> None:
    """Stops sharing somebody's view; its owner keeps it."""
    with transaction.atomic():
        _own(view.user)
        if SavedView.objects.filter(pk=view.pk, shared=True).update(shared=False):
            view.first_of.all().delete()
            ledger.record("", audit.ViewWithdrawn(**_of(view)), actor=actor, now=now)


def shared_by_others(user: User) -> QuerySet[SavedView]:
    """The views that other active people share."""
    return SavedView.objects.filter(shared=True, user__is_active=True).exclude(user=user)


def first_view(user: User, listing: str) -> SavedView | None:
    """The view with which the list opens for the person: one of their own, or one that somebody else shares."""
    own, shared = Q(user=user, opens_first=True), Q(first_of__user=user, shared=True, user__is_active=True)
    return SavedView.objects.filter(own | shared, listing=listing).first()


def open_with(user: User, view: SavedView, *, opens_first: bool) -> None:
    """Makes the list open for the person with somebody else's view, or not any more.

    Raises Refused if the view is not shared.
    """
    with transaction.atomic():
        own = _own(user).filter(listing=view.listing)
        rows = SharedFirstView.objects.filter(user=user, listing=view.listing)
        if not opens_first:
            rows.filter(view=view).delete()
            return
        if not shared_by_others(user).filter(pk=view.pk).exists():
            raise Refused(reasons.of("view_not_shared", name=view.name))
        own.filter(opens_first=True).update(opens_first=False)
        SharedFirstView.objects.update_or_create(user=user, listing=view.listing, defaults={"view": view})


def _write(view: SavedView, *, name: str, shared: bool, opens_first: bool, now: datetime) -> None:
    others = SavedView.objects.filter(user=view.user, listing=view.listing).exclude(pk=view.pk)
    _check_free(others, name)
    if shared and not (view.shared and view.name == name) and not may_share(view.user):  # everybody reads the name
        raise Refused(reasons.of("role_needed", role=queries.role_with(Verb.REPAIR)))
    before = (view.shared, view.name)
    if opens_first:
        others.filter(opens_first=True).update(opens_first=False)
        SharedFirstView.objects.filter(user=view.user, listing=view.listing).delete()
    if view.shared and not shared:
        view.first_of.all().delete()
        ledger.record("", audit.ViewWithdrawn(**_of(view)), actor=queries.actor(view.user), now=now)
    view.name, view.shared, view.opens_first = name, shared, opens_first
    view.save()
    if shared and before != (shared, name):
        ledger.record("", audit.ViewShared(**_of(view)), actor=queries.actor(view.user), now=now)


def _check_room(own: QuerySet[SavedView]) -> None:
    if own.count() >= MAX_VIEWS:
        raise Refused(reasons.of("views_full", most=MAX_VIEWS))


def _check_free(others: QuerySet[SavedView], name: str) -> None:
    """``others``: the person's other views of the list."""
    if others.filter(name=name).exists():
        raise Refused(reasons.of("view_name_taken", name=name))


def _own(user: User) -> QuerySet[SavedView]:
    """The person's views, which no other transaction can change meanwhile."""
    User.objects.select_for_update().get(pk=user.pk)
    return SavedView.objects.filter(user=user)


def _of(view: SavedView) -> dict[str, str]:
    return {"listing": view.listing, "name": view.name, "query": view.query}
