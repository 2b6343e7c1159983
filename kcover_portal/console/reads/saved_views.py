"""The saved views of a list, as tabs above it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db.models import Exists, OuterRef, Q
from django.http import QueryDict

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import SavedView, SharedFirstView, User, Verb
from kcover_portal.accounts.services import Refused
from kcover_portal.console import lists
from kcover_portal.console.list_query import ListResult

MAX_SHOWN = 60  # a person's own and the shared ones
PAGES: Final = {  # lists with saved views, and their pages
    **{name: f"console:{name}" for name in ("nodes", "incidents", "occurrences", "decisions", "rescues", "audit")},
    **{name: f"console:{name}" for name in ("repairs", "check-runs", "validations", "preflight-runs")},
    "placements": "console:parts",
}


@dataclass(frozen=True, slots=True)
class ViewTab:
    """A saved view; ``here``: the list shows it now; ``withdrawable``: the person may stop sharing another's view.

    ``first``: the list opens with it for this person.
    """

    view: SavedView
    own: bool
    here: bool
    withdrawable: bool
    first: bool


def checked_query(user: User, listing: str, query: str) -> str:
    """Returns the query in its one spelling. Raises Refused for a list without views and for wrong parameters."""
    if listing not in PAGES:
        raise Refused(reasons.of("view_list_unknown", name=listing, known=", ".join(sorted(PAGES))))
    found = lists.find(lists.LISTINGS[listing], user, QueryDict(query.removeprefix("?")))
    if found.problems:
        raise Refused(reasons.of("view_parameters", parameters=", ".join(one.name for one in found.problems)))
    return found.view_query


def of(user: User, found: ListResult) -> Sequence[ViewTab]:
    """The views of the list: the person's own and the shared ones, by name."""
    if found.listing.name not in PAGES:
        return ()
    shared = Q(shared=True, user__is_active=True)
    rows = SavedView.objects.filter(Q(user=user) | shared, listing=found.listing.name)
    rows = rows.select_related("user").annotate(
        first=Exists(SharedFirstView.objects.filter(view=OuterRef("pk"), user=user))
    )
    here, withdraws = found.view_query, accounts.may(user, Verb.ADMINISTER, None)
    return [
        ViewTab(row, own, row.query == here, withdraws and not own, row.opens_first if own else row.first)
        for row in rows[:MAX_SHOWN]
        for own in (row.user_id == user.pk,)
    ]
