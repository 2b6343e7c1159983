"""Approvals: the inbox, the affected pods, approval links and the page that a link opens."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone, translation
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.console import form_dialog, forms
from kcover_portal.console.access import Request, place, require, signed_in
from kcover_portal.console.reads import approvals as reads, job_requests
from kcover_portal.lib import localization
from kcover_portal.rescue import services
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import concurrency_limits

# The HTTP status for a link that opens nothing, for programs; people read the page.
STATUS = {approval_links.BAD: 404, approval_links.NOBODY: 403}
GONE = 410
LINK_COOKIE = "kcover_link"
LINK_COOKIE_SECONDS = 3600


@require_GET
@signed_in
def approvals(request: Request) -> HttpResponse:
    """Open requests, the first to expire first, and recently answered ones."""
    seen = accounts.scope(request.user)
    questions = reads.waiting(seen, user=request.user)
    context = {"placed": job_requests.placed(questions), "answered": reads.answered(seen)}
    context["just"] = request.GET.get("answered", "")[:12] if request.GET.get("answered", "").isdecimal() else ""
    return render(request, "console/pages/approvals.html", context)


@require_GET
@signed_in
def pods(request: Request, pk: int) -> HttpResponse:
    """The pods that an approval would evict; with ``stay``, those that keep running after a denial.

    A separate request, since the inbox is reloaded with every signal.
    """
    row = _find(request, pk)
    with place(request, concurrency_limits.CLUSTER_READS):
        now = timezone.now()
        plan = services.preview(row.node, "drain", now=now)
        jobs = reads.affected_jobs(row.node, accounts.scope(request.user), asked=row, now=now)
    may = accounts.may(request.user, Verb.APPROVE, row.node)
    shown = {"pods": plan.pods, "jobs": jobs, "rescue": row, "may": may, "stay": "stay" in request.GET}
    return render(request, "console/parts/pods.html", shown)


@require_GET
@signed_in
def answered(request: Request, pk: int) -> HttpResponse:
    """Returns whether a request is still open, for dialogs that are open while someone else answers."""
    row = _find(request, pk)
    return render(request, "console/parts/answered.html", {"question": reads.question(row, user=request.user)})


@require_http_methods(["GET", "POST"])
@signed_in
def link(request: Request, pk: int) -> HttpResponse:
    """Choose a person (GET), then create the link (POST)."""
    row = _find(request, pk)
    require(request, Verb.APPROVE, row.node)
    form = forms.Approver(request.POST or None, people=reads.approvers(row, maker=request.user))
    shown: dict[str, Any] = {"rescue": row, "page": "console/pages/approval_link.html"}
    shown["back"] = reverse("console:rescue", args=(pk,))

    def make(given: dict[str, Any], now: datetime) -> HttpResponse:
        person = given["approver"]
        address = approval_links.invite(row, person, maker=request.user, now=now)
        return form_dialog.ask(request, form, **shown, person=person, link=request.build_absolute_uri(address))

    return form_dialog.act(request, form, make, step_up=True, **shown)


@never_cache
@require_http_methods(["GET", "POST"])
def by_link(request: HttpRequest) -> HttpResponse:
    """The page of an approval link: evidence and two buttons (GET); only a POST with an answer answers.

    A script posts the token, which is behind # in the address, once; a cookie of this page then carries it. The page is
    in the named person's language. It is never cached, and search engines must not index it.
    """
    now = timezone.now()
    posted = request.POST.get("token", "").strip()
    token = posted.rpartition("#")[2] or request.COOKIES.get(LINK_COOKIE, "")
    if not token:
        return _page(request, {"opens": True})
    try:
        invitation = approval_links.read(token, now=now)
    except approval_links.LinkError as error:
        return _forget(_invalid_link(request, error))
    if posted:
        return _remember(redirect("console:approve"), token)
    with translation.override(invitation.user.language or translation.get_language()):
        return _answer(request, invitation, now=now)


def _answer(request: HttpRequest, invitation: approval_links.Invitation, *, now: datetime) -> HttpResponse:
    row, person = invitation.rescue, invitation.user
    if request.user == person:  # then this is more than a link: the console asks for what an approval needs
        return _forget(redirect("console:rescue", row.pk))
    other = request.user.is_authenticated
    form = forms.Act(request.POST or None)
    say = {"yes": services.approve, "no": services.reject}.get(request.POST.get("answer", ""))
    if request.method == "POST" and say is not None and form.is_valid():
        try:
            if other:
                raise services.RescueRefused(reasons.of("link_of_another", user=request.user.get_username()))
            reason = form.cleaned_data["reason"]
            given = {"reason": reason, "plan_hash": row.plan_hash, "via": "link", "link_maker": invitation.maker}
            say(row, actor=accounts.actor(person), now=now, **given)
        except services.RescueRefused as error:
            form.add_error(None, localization.say(error.reason))
        else:
            return _forget(_page(request, {"rescue": row, "answer": request.POST["answer"]}))
    question = reads.question(row, user=None)
    pods = services.preview(row.node, "drain", now=now).pods if question.evicts else []
    context = {"question": question, "person": person, "pods": pods, "form": form}
    context["other"] = request.user.get_username() if other else ""
    return _page(request, context, status=422 if form.errors else 200)


def _remember(response: HttpResponse, token: str) -> HttpResponse:
    response.set_cookie(
        LINK_COOKIE,
        token,
        max_age=LINK_COOKIE_SECONDS,
        path=reverse("console:approve"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Strict",
    )
    return response


def _forget(response: HttpResponse) -> HttpResponse:
    response.delete_cookie(LINK_COOKIE, path=reverse("console:approve"), samesite="Strict")
    return response


def _invalid_link(request: HttpRequest, error: approval_links.LinkError) -> HttpResponse:
    """The reason why a link is not valid. Shows no more of the rescue than the link's person already knows."""
    context = {"shut": error.code, "vote": error.vote, "rescue": error.rescue}
    return _page(request, context, status=STATUS.get(error.code, GONE))


def _page(request: HttpRequest, context: Mapping[str, object], *, status: int = 200) -> HttpResponse:
    # The page belongs to the link's person, not to whoever is signed in.
    shown = {**context, "user": AnonymousUser()}
    response = render(request, "console/pages/by_link.html", shown, status=status)
    response.headers["X-Robots-Tag"] = "noindex"
    return response


def _find(request: Request, pk: int) -> Rescue:
    seen: QuerySet[Rescue] = accounts.visible(request.user, Rescue.objects.all())
    return get_object_or_404(seen.select_related("node", "cluster", "decision"), pk=pk)
