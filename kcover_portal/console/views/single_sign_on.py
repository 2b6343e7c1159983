"""Single sign-on: the way to the identity provider and back, and its notice that a session has ended."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from kcover import reasons
from kcover_portal.accounts import services
from kcover_portal.accounts.services import oidc
from kcover_portal.config.oidc_settings import CALLBACK
from kcover_portal.console import admission
from kcover_portal.console.access import later, page_of_portal
from kcover_portal.lib import localization

COOKIE = "kcover_oidc"


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    """Send the browser to the identity provider."""
    try:
        begun = oidc.begin(page_of_portal(request, request.GET.get("next", "")), now=timezone.now())
    except services.Refused as refused:
        return _refused(request, refused)
    response = redirect(begun.address)
    response.set_cookie(
        COOKIE,
        begun.cookie,
        max_age=oidc.FLOW_LIFETIME,
        path=CALLBACK,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",  # the provider redirects here from another site
    )
    return response


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in with the provider's answer. An old session of the browser ends."""
    address = services.client_address(request)
    try:
        done = oidc.complete(
            request.GET.dict(), cookie=request.COOKIES.get(COOKIE, ""), address=address, now=timezone.now()
        )
    except services.Refused as refused:
        response = _refused(request, refused)
    else:
        request.session.flush()
        response = admission.after_password(
            request,
            done.identity.user,
            target=page_of_portal(request, done.target) or resolve_url(settings.LOGIN_REDIRECT_URL),
            sign_on={
                "identity": done.identity.pk,
                "issuer": done.identity.issuer,
                "sid": done.provider_session,
                "id_token": done.id_token,
            },
        )
    response.delete_cookie(COOKIE, path=CALLBACK, samesite="Lax")
    return response


@csrf_exempt  # the provider calls, with a signed token
@never_cache
@require_POST
def ended_by_provider(request: HttpRequest) -> HttpResponse:
    """End the sessions that the provider's logout token names (OpenID Connect Back-Channel Logout 1.0)."""
    try:
        oidc.end_by_provider(request.POST.get("logout_token"), now=timezone.now())
    except services.RetryLater as refused:
        return later(JsonResponse({"error": "temporarily_unavailable"}), refused)
    except oidc.SignOnRefused as refused:
        status = refused.status if refused.status >= 500 else 400
        body = {"error": "invalid_request", "error_description": str(refused), "code": refused.reason.code}
        return JsonResponse(body, status=status)
    return HttpResponse()


def _refused(request: HttpRequest, refused: services.Refused) -> HttpResponse:
    """The sign-in page with the reason; its code is in ``data-code``."""
    reason: reasons.Reason = refused.reason
    context = {"refusal": localization.say(reason), "code": reason.code, "again": reverse("console:sign-in")}
    response = render(request, "console/pages/sign_in_refused.html", context)
    if isinstance(refused, services.RetryLater):
        return later(response, refused)
    response.status_code = refused.status if isinstance(refused, oidc.SignOnRefused) else 400
    return response
