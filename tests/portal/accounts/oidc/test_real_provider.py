"""Sign-in against Django OAuth Toolkit, a provider that shares no code with the portal, in a process of its own."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import queries
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import oidc
from kcover_portal.accounts.services.oidc import provider as calls
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.fleet.models import Cluster
from tests import oidc_provider

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.real_clock("tokens of the provider, another process, say when they were issued"),
]
PORTAL = "http://testserver"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@pytest.fixture(scope="module")
def real() -> Iterator[oidc_provider.Provider]:
    with oidc_provider.Provider(PORTAL) as running:
        yield running


@pytest.fixture
def portal(real: oidc_provider.Provider, settings: Any) -> Iterator[Client]:
    calls.forget()
    settings.KCOVER_OIDC = Oidc(
        issuer=real.url, client_id=oidc_provider.CLIENT, client_secret=oidc_provider.SECRET, portal=PORTAL
    )
    yield Client()
    calls.forget()


def sign_in(portal: Client, name: str) -> Any:
    """The portal's answer to the provider's redirect, after the person typed their password there."""
    address = portal.get("/sign-in/oidc/").headers["Location"]
    with requests.Session() as browser:
        form = browser.get(address)
        typed = {"username": name, "password": oidc_provider.PASSWORD}
        token = TOKEN.findall(form.text)[0]
        answer = browser.post(form.url, data={**typed, "csrfmiddlewaretoken": token}, allow_redirects=False)
        while answer.is_redirect and not answer.headers["Location"].startswith(PORTAL):
            answer = browser.get(requests.compat.urljoin(answer.url, answer.headers["Location"]), allow_redirects=False)
    back = urlsplit(answer.headers["Location"])
    return portal.get(back.path, dict(parse_qsl(back.query)))


def test_groups_become_roles_and_follow_the_provider(portal: Client, real: oidc_provider.Provider) -> None:
    now = timezone.now()
    east, west = (Cluster.objects.create(name=name, created_at=now) for name in ("east", "west"))
    oidc.map_group("gpu-operators", "operator", cluster=east, actor="test", now=now)
    real.put_person("anna", ["gpu-operators", "choir"])
    assert sign_in(portal, "anna").headers["Location"] == "/"
    user = User.objects.get(username="anna")
    assert (queries.may(user, "operator", east), queries.may(user, "viewer", west)) == (True, False)
    assert portal.get("/account/").status_code == 200
    real.put_person("anna", ["choir"])
    sign_in(portal, "anna")
    assert portal.get("/account/").status_code == 403


def test_the_wrong_client_secret_is_refused(portal: Client, real: oidc_provider.Provider, settings: Any) -> None:
    settings.KCOVER_OIDC = Oidc(issuer=real.url, client_id=oidc_provider.CLIENT, client_secret="no", portal=PORTAL)
    real.put_person("bo", [])
    response = sign_in(portal, "bo")
    assert (response.context["code"], response.status_code) == ("oidc_code_refused", 400)


def test_a_provider_that_stops_and_comes_back(portal: Client, real: oidc_provider.Provider) -> None:
    real.put_person("bo", [])
    assert sign_in(portal, "bo").status_code == 302
    calls.forget()
    real.stop()
    try:
        response = portal.get("/sign-in/oidc/")
        assert (response.context["code"], response.status_code) == ("oidc_unreachable", 503)
    finally:
        real.start()
    assert sign_in(portal, "bo").status_code == 302


def test_signing_out_leads_back_through_the_provider(portal: Client, real: oidc_provider.Provider) -> None:
    real.put_person("bo", [])
    sign_in(portal, "bo")
    address = portal.post("/sign-out/").context["address"]
    answer = requests.get(address, allow_redirects=False, timeout=60)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{PORTAL}/sign-in/")
