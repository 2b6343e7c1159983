"""Sources of faults: everybody sees those of their clusters; admins of a cluster change them."""

from typing import Final

from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from kcover.sources import settings
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import lists, presentation
from kcover_portal.console.access import Request, dialog, place, require, signed_in
from kcover_portal.console.settings_dialogs import SettingsDialogs
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source

# Kinds of which people add sources.
KINDS: Final = {kind: Source.Kind(kind).label for kind in (*settings.PUSHED, *settings.PULLED)}


@require_GET
@signed_in
def sources(request: Request) -> HttpResponse:
    """The sources of the person's clusters, with their state."""
    rows = list(accounts.visible(request.user, queries.all_sources(), node=None))
    troubles = queries.troubles(rows, now=timezone.now())
    configured = set(accounts.clusters_of(request.user, Verb.CONFIGURE).values_list("pk", flat=True))
    tested = set(accounts.clusters_of(request.user, Verb.GUARD).values_list("pk", flat=True))
    context = {
        "sources": [
            {
                "row": row,
                "state": presentation.connection(
                    enabled=row.enabled, trouble=troubles.get(row.pk), worked=row.last_contact_at
                ),
                "trouble": troubles.get(row.pk),
                "warning": queries.warning(row),
                "may_change": row.cluster_id in configured,
                "may_test": row.cluster_id in tested,
            }
            for row in rows
        ],
        "kinds": KINDS.items() if configured else [],
        "found": lists.find(lists.SOURCES, request.user, QueryDict()),
    }
    return render(request, "console/pages/sources.html", context)


@require_POST
@signed_in
def test_source(request: Request, name: str) -> HttpResponse:
    """Show what the source saw in the last hour."""
    row = get_object_or_404(accounts.visible(request.user, queries.all_sources(), node=None), name=name)
    require(request, Verb.GUARD, row.cluster)
    with place(request, concurrency_limits.SOURCE_TESTS):
        trial = services.try_here_or_by_worker(row, clock=timezone.now)
    context = {"source": row, "trial": trial, "base": dialog(request)}
    return render(request, "console/pages/source_test.html", context)


DIALOGS: Final = SettingsDialogs(
    resource=services.SOURCES,
    page="sources",
    name="source",
    icon="plug",
    labels=KINDS,
    new_title=gettext_lazy("New source: %(kind)s"),
    add=gettext_lazy("Add"),
    title=gettext_lazy("Source %(name)s"),
    delete_title=gettext_lazy("Delete source %(name)s…"),
    delete_text=gettext_lazy("Its tokens are revoked. Incidents that it opened stay."),
)
