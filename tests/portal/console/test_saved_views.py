"""Saved views: own and shared ones, the one with which a list opens, and their bounds."""

import pytest
from django.contrib.auth import get_user_model

from kcover import audit
from kcover_portal.accounts.models import SavedView, SharedFirstView
from kcover_portal.accounts.services import Refused, saved_views
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.portal.rescue.world import World

NEW = "/views/nodes/new/?pool=red&sort=-gpus&page=3&columns=pool"
QUERY = "columns=pool&pool=red&sort=-gpus"


def tabs(client, page: str = "/nodes/?view=none") -> list[tuple[str, bool, bool]]:
    found = client.get(page)
    context = found.context.get("saved", ())
    return [(tab.view.name, tab.own, tab.here) for tab in context]


def test_a_view_is_saved_shown_changed_and_deleted(person, world: World):
    client = person("viewer", name="vera")
    assert tabs(client) == []
    assert client.get(NEW).context["form"].fields.keys() == {"name", "opens_first"}
    done = client.post(NEW, {"name": "Red ones"})
    assert (done.status_code, done.url) == (302, f"/nodes/?{QUERY}")
    view = SavedView.objects.get()
    assert (view.user.username, view.listing, view.query, view.shared) == ("vera", "nodes", QUERY, False)
    assert tabs(client, f"/nodes/?{QUERY}&page=2") == [("Red ones", True, True)]
    assert tabs(client, "/nodes/?pool=red") == [("Red ones", True, False)]
    assert tabs(client, "/rescues/?tab=all") == []
    assert client.post(NEW, {"name": "Red ones"}).status_code == 422

    changed = {"name": "Mine", "opens_first": "on"}
    assert client.post(f"/views/{view.pk}/change/", changed).status_code == 302
    assert client.get("/nodes/").url == f"/nodes/?{QUERY}"
    assert client.get("/nodes/", headers={"HX-Request": "true"}).status_code == 200
    assert client.get("/nodes/?view=none").status_code == 200
    assert client.post(NEW, {"name": "Second", "opens_first": "on"}).status_code == 302
    assert [row.name for row in SavedView.objects.filter(opens_first=True)] == ["Second"]

    assert person("admin").post(f"/views/{view.pk}/delete/").status_code == 404
    assert client.post(f"/views/{view.pk}/delete/").status_code == 302
    assert [row.name for row in SavedView.objects.all()] == ["Second"]
    assert not Entry.objects.filter(verb__startswith="view.").exists()


def test_a_view_with_a_wrong_parameter_is_not_saved(person, world: World):
    client = person("viewer")
    assert client.post("/views/nodes/new/?bogus=1&status=healthy", {"name": "x"}).status_code == 422
    assert client.post("/views/nodes/new/?status=no-such", {"name": "x"}).status_code == 422
    assert client.get("/views/revisions/new/").status_code == 404
    assert not SavedView.objects.exists()


def test_a_shared_view_needs_the_role_everywhere_and_is_recorded(person, world: World):
    bound = person("operator", cluster=Cluster.objects.get())
    assert bound.post(NEW, {"name": "x", "shared": "on"}).status_code == 302
    assert not SavedView.objects.get().shared
    owner = person("operator", name="omar")
    owner.post(NEW, {"name": "Ours", "shared": "on"})
    view = SavedView.objects.get(name="Ours")
    viewer = person("viewer")
    assert tabs(viewer) == [("Ours", False, False)]
    assert viewer.get(f"/views/{view.pk}/change/").status_code == 404
    owner.post(f"/views/{view.pk}/change/", {"name": "Ours"})
    assert tabs(viewer) == []
    said = {"listing": "nodes", "name": "Ours", "query": QUERY}
    entries = Entry.objects.filter(verb__startswith="view.").order_by("pk")
    assert [audit.from_entry(entry) for entry in entries] == [audit.ViewShared(**said), audit.ViewWithdrawn(**said)]
    assert {entry.actor for entry in entries} == {"user:omar"}
    with pytest.raises(Refused) as refused:
        saved_views.change(SavedView.objects.get(name="x"), name="x", shared=True, opens_first=False, now=world.now)
    assert refused.value.reason.code == "role_needed"


def test_a_person_keeps_a_bounded_number_of_views(person, world: World):
    person("viewer", name="vera")
    vera = get_user_model().objects.get(username="vera")
    for number in range(saved_views.MAX_VIEWS):
        saved_views.save(vera, listing="nodes", name=f"v{number}", query="", now=world.now)
    with pytest.raises(Refused) as refused:
        saved_views.save(vera, listing="rescues", name="one more", query="", now=world.now)
    assert refused.value.reason.code == "views_full"


def test_a_shared_view_outlives_no_role_and_no_account(person, world: World):
    owner = person("operator", name="omar")
    owner.post(NEW, {"name": "Ours", "shared": "on"})
    view, omar, viewer = SavedView.objects.get(), get_user_model().objects.get(username="omar"), person("viewer")
    omar.bindings.update(role="viewer")
    assert owner.post(f"/views/{view.pk}/change/", {"name": "Read me", "shared": "on"}).status_code == 422
    assert (
        owner.post(f"/views/{view.pk}/change/", {"name": "Ours", "shared": "on", "opens_first": "on"}).status_code
        == 302
    )
    assert tabs(viewer) == [("Ours", False, False)]
    get_user_model().objects.filter(pk=omar.pk).update(is_active=False)
    assert tabs(viewer) == []
    get_user_model().objects.filter(pk=omar.pk).update(is_active=True)
    assert viewer.post(f"/views/{view.pk}/withdraw/").status_code == 403
    admin = person("admin", name="ada")
    assert f"/views/{view.pk}/withdraw/" in admin.get(f"/nodes/?{QUERY}").content.decode()
    assert admin.get(f"/views/{view.pk}/withdraw/").status_code == 200
    assert admin.post(f"/views/{view.pk}/withdraw/").status_code == 302
    assert tabs(viewer) == []
    assert (SavedView.objects.get().shared, Entry.objects.get(verb="view.withdrawn").actor) == (False, "user:ada")
    assert admin.post(f"/views/{view.pk}/withdraw/").status_code == 404


def test_filters_that_the_database_cannot_store_are_refused(person, world: World):
    long = "&".join(f"pool=p{number}" for number in range(200))
    assert person("viewer").post(f"/views/nodes/new/?{long}", {"name": "x"}).status_code == 422
    assert not SavedView.objects.exists()


def test_a_list_opens_with_the_shared_view_of_somebody_else(person, world: World):
    owner, viewer = person("operator", name="omar"), person("viewer", name="vera")
    owner.post(NEW, {"name": "Ours", "shared": "on", "opens_first": "on"})
    view = SavedView.objects.get(name="Ours")
    first = f"/views/{view.pk}/first/"
    assert viewer.get("/nodes/").status_code == 200  # the owner's choice is the owner's own
    assert first in viewer.get(f"/nodes/?{QUERY}").content.decode()
    assert owner.get(first).status_code == 404
    assert viewer.get(first).status_code == 200
    assert not SharedFirstView.objects.exists()
    assert viewer.post(first).status_code == 302
    assert viewer.get("/nodes/").url == f"/nodes/?{QUERY}"
    assert owner.get("/nodes/").url == f"/nodes/?{QUERY}"
    [tab] = viewer.get(f"/nodes/?{QUERY}").context["saved"]
    assert (tab.own, tab.first) == (False, True)
    viewer.post(first)
    assert viewer.get("/nodes/").status_code == 200

    viewer.post(first)
    assert viewer.post("/views/nodes/new/?pool=blue", {"name": "Mine", "opens_first": "on"}).status_code == 302
    assert (viewer.get("/nodes/").url, SharedFirstView.objects.count()) == ("/nodes/?pool=blue", 0)
    viewer.post(first)
    assert viewer.get("/nodes/").url == f"/nodes/?{QUERY}"
    assert not SavedView.objects.get(name="Mine").opens_first


def test_a_view_that_is_not_shared_any_more_opens_no_list(person, world: World):
    owner, viewer, admin = person("operator", name="omar"), person("viewer"), person("admin")
    for end in ("change", "withdraw", "delete", "inactive"):
        owner.post(NEW, {"name": end, "shared": "on"})
        view = SavedView.objects.get(name=end)
        viewer.post(f"/views/{view.pk}/first/")
        assert viewer.get("/nodes/").status_code == 302, end
        if end == "change":
            owner.post(f"/views/{view.pk}/change/", {"name": end})
        elif end == "withdraw":
            admin.post(f"/views/{view.pk}/withdraw/")
        elif end == "delete":
            owner.post(f"/views/{view.pk}/delete/")
        else:
            get_user_model().objects.filter(username="omar").update(is_active=False)
        assert viewer.get("/nodes/").status_code == 200, end
        assert viewer.post(f"/views/{view.pk}/first/").status_code == 404, end
    own = SavedView.objects.filter(shared=False).first()
    with pytest.raises(Refused) as refused:
        saved_views.open_with(get_user_model().objects.get(username__startswith="viewer"), own, opens_first=True)
    assert refused.value.reason.code == "view_not_shared"


@pytest.mark.parametrize("number", [1, 3])
def test_more_shared_views_take_no_more_statements(person, world: World, django_assert_num_queries, number: int):
    owner, viewer = person("operator", name="omar"), person("viewer")
    for at in range(number):
        owner.post(NEW, {"name": f"v-{at}", "shared": "on"})
        viewer.post(f"/views/{SavedView.objects.latest('pk').pk}/first/")
    viewer.get(f"/nodes/?{QUERY}")
    with django_assert_num_queries(4):
        assert viewer.get("/nodes/").status_code == 302
