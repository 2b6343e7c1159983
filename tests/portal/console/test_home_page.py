"""The page that a person chose as home: where / leads, what can be one, and the way back to the overview."""

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from kcover_portal.console import home_pages
from kcover_portal.fleet.models import Cluster
from tests.portal.console import pools
from tests.portal.console.conftest import PASSWORD
from tests.portal.rescue.world import World


def choose(client: Client, page: str, **more: str) -> str:
    """Returns the code of the refusal, or where the answer leads."""
    done = client.post("/account/home/", {"page": page, **more})
    assert done.status_code == 302
    return str(done.url)


def home_of(client: Client) -> str:
    return str(get_user_model().objects.get(pk=client.session["_auth_user_id"]).home)


def test_the_pages_that_a_person_may_open_are_offered_and_no_others(person, world: World):
    client = person("viewer")
    user = get_user_model().objects.get(pk=client.session["_auth_user_id"])
    offered = {page.name for page in home_pages.open_pages(user)}
    assert offered == home_pages.TITLES.keys() - {"access", "notifications"}
    for name in home_pages.TITLES:
        address = home_pages.HomePage(name).address
        opens = client.get(address).status_code == 200
        assert (name in offered) == opens, name
        assert choose(client, address) == (address if opens else "/account/")
        if opens and name != "overview":
            assert client.get("/").url == address
    everything = get_user_model().objects.get(pk=person("admin").session["_auth_user_id"])
    assert {page.name for page in home_pages.open_pages(everything)} == home_pages.TITLES.keys()


def test_filters_stay_and_sign_in_leads_to_the_home(person, world: World):
    client = person("viewer", name="vera")
    assert home_of(client) == ""
    assert client.get("/").context["home_choice"].chosen
    for asked, kept in (
        ("/nodes/?page=3&sort=-gpus&status=healthy&q=", "/nodes/?sort=-gpus&status=healthy"),
        ("/nodes/?view=none", "/nodes/?view=none"),
        ("/reports/?by=pool&period=7d&cluster=c1", "/reports/?by=pool&cluster=c1&period=7d"),
        ("/map/?by=rack", "/map/?by=rack"),
        ("/parts/?q=GPU", "/parts/?q=GPU"),
        ("/safety/?next=//evil.example", "/safety/"),
    ):
        assert choose(client, asked) == kept
        assert client.get("/").url == kept
    assert choose(client, "/nodes/?status=healthy") == "/nodes/?status=healthy"
    page = client.get("/nodes/?status=healthy&page=1")
    assert page.context["home_choice"].chosen
    assert not client.get("/nodes/").context["home_choice"].chosen
    assert not client.get("/incidents/log/").context["home_choice"]
    signed_out = Client()
    entered = signed_out.post("/sign-in/", {"username": "vera", "password": PASSWORD}, follow=True)
    assert [where for where, _status in entered.redirect_chain] == ["/", "/nodes/?status=healthy"]
    # The overview stays within reach: by the navigation, as a fragment of a page that was open, and by its parameters.
    assert 'href="/overview/"' in page.content.decode()
    for overview in (
        client.get("/overview/"),
        client.get("/?by=rack"),
        client.get("/", headers={"HX-Request": "true"}),
    ):
        assert overview.status_code == 200
        assert "console/pages/overview.html" in [template.name for template in overview.templates]
    assert choose(client, "/overview/", **{"from": "account"}) == "/account/"
    assert (home_of(client), client.get("/").status_code) == ("", 200)


NO_HOMES = (
    *("https://evil.example/nodes/", "//evil.example/nodes/", "/\\evil.example/", "javascript:alert(1)", "nodes"),
    *("", "/no-such/", "/sign-out/", "/pause/", "/api/v1/nodes", "/export/nodes.csv", "/access/", "/notifications/"),
    *("/nodes/?bogus=1", "/nodes/?status=none-such", "/nodes/?cluster=gone", "/map/?by=moon", "/reports/?by=moon"),
    *("/reports/?cluster=gone", "/nodes/?" + "&".join(f"pool=p{number}" for number in range(200))),
    *("http://[", "/nodes/\0", "/nodes/?cluster=%00", "/rescues/1/", "/nodes/?cluster=c1&cluster=gone"),
)


def test_an_address_elsewhere_or_without_effect_is_refused(person, world: World):
    client = person("viewer")
    for address in NO_HOMES:
        assert choose(client, address) == "/account/", address
        assert home_of(client) == ""
        assert len(list(client.get("/account/").context["messages"])) == 1


@pytest.mark.django_db
def test_a_forbidden_home_page_is_replaced_by_the_overview_until_it_is_allowed(now):
    two = pools.make(now)
    other = Cluster.objects.create(name="other", created_at=now)
    ada, client = pools.bound("ada", "admin", two.cluster, "", now)
    wide = ada.bindings.create(role="admin", cluster=other)
    for address, narrow, widen in (
        ("/nodes/?cluster=other", wide.delete, lambda: ada.bindings.create(role="admin", cluster=other)),
        ("/access/", lambda: ada.bindings.update(role="viewer"), lambda: ada.bindings.update(role="admin")),
    ):
        assert choose(client, address) == address
        narrow()
        page = client.get("/")
        assert page.status_code == 200
        assert [message.level_tag for message in page.context["messages"]][-1:] == ["warning"]
        widen()
        assert client.get("/").url == address
    get_user_model().objects.filter(pk=ada.pk).update(home="//evil.example/?x")
    assert client.get("/").status_code == 200
