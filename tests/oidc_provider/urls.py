"""The provider's addresses: sign-in, OpenID Connect, and the test's own way to change people."""

import json

from django.contrib.auth.models import Group, User
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from tests.oidc_provider import PASSWORD


@csrf_exempt
def person(request: HttpRequest, name: str) -> HttpResponse:
    """PUT creates a person or replaces their groups; DELETE removes them."""
    if request.method == "DELETE":
        User.objects.filter(username=name).delete()
        return HttpResponse(status=204)
    found = User.objects.filter(username=name).first() or User.objects.create_user(name, password=PASSWORD)
    groups = json.loads(request.body)["groups"]
    found.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return HttpResponse(status=204)


urlpatterns = [
    path("login/", LoginView.as_view()),
    path("people/<str:name>", person),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]
