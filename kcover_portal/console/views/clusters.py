"""Adding a cluster: a form, the test of its access, and what to do next."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console.access import Request, lead, place, require, signed_in
from kcover_portal.console.confirmation import confirm
from kcover_portal.console.forms.clusters import NewCluster
from kcover_portal.console.reads import new_clusters as reads
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_access, registry
from kcover_portal.runtime.services import concurrency_limits


@sensitive_post_parameters("kubeconfig")
@require_http_methods(["GET", "POST"])
@signed_in
def new_cluster(request: Request) -> HttpResponse:
    """Show the form (GET); test the access, and with ``add`` also register the cluster (POST).

    A kubeconfig is in memory only while it is tested. It is never part of a page.
    """
    require(request, Verb.CONFIGURE, None)
    confirm(request, resend=False)
    form = NewCluster(request.POST if request.method == "POST" else None)
    access = _tested(request, form) if form.is_bound else None
    if access is not None and access.unreachable is None and "add" in request.POST:
        try:
            row = registry.add(
                form.cleaned_data["name"],
                actor=accounts.actor(request.user),
                now=timezone.now(),
                by_page=True,
                **form.row(),
            )
        except registry.ClusterRefused as error:
            form.add_error(None, str(error))
        else:
            return lead(request, reverse("console:cluster-next", args=(row.name,)))
    context = {
        "form": form,
        "access": access,
        "lacking": reads.lacking(access) if access else [],
        "granted": reads.granted(access) if access else [],
        "account_commands": reads.ACCOUNT_COMMANDS,
    }
    template = (
        "console/parts/cluster_access.html" if request.htmx and form.is_bound else "console/pages/cluster_new.html"
    )
    return render(request, template, context, status=422 if form.errors else 200)


@require_GET
@signed_in
def next_steps(request: Request, name: str) -> HttpResponse:
    """What to do after a cluster was added, and how far it got."""
    return _next_steps(request, _registered(request, name), access=None)


@require_POST
@signed_in
def test_access(request: Request, name: str) -> HttpResponse:
    """Test the stored access of a cluster: as a fragment of its page, or as the page with the result.

    Only the rights of ``web`` can be tested where it has an account of its own.
    """
    cluster = _registered(request, name)
    require(request, Verb.CONFIGURE, cluster)
    with place(request, concurrency_limits.ACCESS_TESTS):
        access = cluster_access.test_and_record(cluster, actor=accounts.actor(request.user), now=timezone.now())
    return _next_steps(request, cluster, access=access)


def _registered(request: Request, name: str) -> Cluster:
    found: Cluster = get_object_or_404(accounts.clusters_of(request.user), name=name)
    return found


def _next_steps(request: Request, cluster: Cluster, *, access: cluster_access.Access | None) -> HttpResponse:
    """The page of a cluster; ``access``: the result of a test, which a script wants without the page."""
    context: dict[str, Any] = {
        "cluster": cluster,
        "access": access,
        "only_web": bool(cluster_access.process_of(cluster)),
        "lacking": reads.lacking(access) if access else [],
        "granted": reads.granted(access) if access else [],
    }
    if access is not None and request.htmx:
        return render(request, "console/parts/cluster_access.html", context)
    context |= {
        "progress": reads.progress(cluster),
        "may_enrol": accounts.may_issue(request.user, "agent", cluster),
        "may_test": accounts.may(request.user, Verb.CONFIGURE, cluster),
        "needs_read_access": reads.needs_read_access(cluster, setting=settings.KCOVER_CLUSTER_ACCESS),
    }
    return render(request, "console/pages/cluster_next.html", context)


def _tested(request: Request, form: NewCluster) -> cluster_access.Access | None:
    """Tests the access; None if the form is invalid. Parsing the kubeconfig costs time, so it needs the place, too."""
    with place(request, concurrency_limits.ACCESS_TESTS):
        if not form.is_valid():
            return None
        access = cluster_access.test_kubeconfig(form.read) if form.read else cluster_access.test_inside()
    cluster_access.record(
        form.cleaned_data["name"],
        access,
        server=form.read.server if form.read else "",
        actor=accounts.actor(request.user),
        now=timezone.now(),
    )
    return access
