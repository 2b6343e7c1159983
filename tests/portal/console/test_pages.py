"""What each page shows, to whom, and what it lets them do."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kcover_portal.accounts.models import RoleBinding, User
from kcover_portal.anchors import tasks
from kcover_portal.anchors.services import verifications
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.policies.models import Policy
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Rescue
from kcover_portal.runtime import queries as runtime
from tests.portal.console.conftest import PASSWORD
from tests.portal.ledger.tampered_rows import unguarded
from tests.portal.rescue import agents
from tests.portal.rescue.world import CORDON, HEAL, World

APPROVE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask}
spec:
  rules:
    - priority: 10
      mode: approve
      errorCode: ["62"]
      actions: [{name: cordon}, {name: drain}]
"""
PAGES = ("/", "/nodes/", "/incidents/", "/rescues/", "/policies/", "/audit/", "/map.json", "/map/")


def text(response) -> str:
    return response.content.decode()


# ------------------------------------------------------------------------------------------------------------- access


@pytest.mark.parametrize("page", PAGES)
def test_a_stranger_is_sent_to_sign_in_and_comes_back(db: None, page: str):
    response = Client().get(page)
    assert response.status_code == 302
    assert response.url.startswith("/sign-in/?next=")


def test_a_fragment_without_a_session_moves_the_whole_page(db: None):
    response = Client().get("/", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/nodes/?q=a"})
    assert response.headers["HX-Redirect"] == "/sign-in/?next=%2Fnodes%2F%3Fq%3Da"


def test_signing_in_returns_to_the_page_in_the_persons_language(person, db: None):
    User.objects.create_user("li", password=PASSWORD, language="zh-hans")
    client = Client()
    response = client.post("/sign-in/?next=/nodes/", {"username": "li", "password": PASSWORD, "next": "/nodes/"})
    assert (response.status_code, response.url) == (302, "/nodes/")
    assert response.cookies["django_language"].value == "zh-hans"


def test_a_wrong_password_is_reported(db: None):
    response = Client().post("/sign-in/", {"username": "x", "password": "y"})
    assert response.status_code == 200
    assert 'role="alert"' in text(response)


def test_a_person_without_a_role_sees_what_to_do(person):
    response = person(None).get("/")
    assert response.status_code == 403
    assert "Your account has no role yet" in text(response)


def test_rows_of_another_cluster_are_hidden(person, world: World):
    other = Cluster.objects.create(name="other", created_at=world.now)
    world.fault()
    world.work()
    client = person("admin", cluster=other)
    assert "gpu-1" not in text(client.get("/nodes/"))
    assert client.get("/map.json").json()["groups"] == []
    for page in ("/nodes/c1/gpu-1/", f"/rescues/{world.rescue().pk}/", f"/incidents/{Incident.objects.get().pk}/"):
        assert client.get(page).status_code == 404
    assert "rescue.opened" not in text(client.get("/audit/"))


def test_a_viewer_sees_no_button_and_gets_no_dialog(person, world: World):
    client = person("viewer")
    assert "/nodes/c1/gpu-1/drain/" not in text(client.get("/nodes/c1/gpu-1/"))
    assert client.get("/nodes/c1/gpu-1/drain/").status_code == 403
    assert client.get("/policies/edit/").status_code == 403
    assert client.get("/pause/").status_code == 403


def test_pages_are_never_kept_by_a_cache(person, world: World):
    response = person("viewer").get("/nodes/")
    assert response.headers["Cache-Control"] == "private, no-store"
    assert "HX-Request" in response.headers["Vary"]


def test_the_policy_of_scripts_allows_nothing_inline(person, world: World):
    response = person("viewer").get("/")
    assert "script-src 'self';" in response.headers["Content-Security-Policy"] + ";"
    assert "<script>" not in text(response)
    assert "onclick" not in text(response)


# ------------------------------------------------------------------------------------------------------------ fragments


# Pages that are renewed while they are shown; the packs once nested the whole page in themselves.
LIVE = (
    "/",
    "/nodes/",
    "/incidents/",
    "/rescues/",
    "/approvals/",
    "/policies/",
    "/policy-packs/",
    "/standbys/",
    "/policy-packs/first/",
)
LIVE += ("/jobs/", "/reports/", "/checks/", "/preflight/", "/safety/", "/audit/")


@pytest.mark.parametrize("page", LIVE)
def test_a_fragment_is_the_live_part_of_its_page(person, world: World, page: str):
    client = person("viewer")
    world.fault()
    world.work()
    whole, part = text(client.get(page)), text(client.get(page, headers={"HX-Request": "true"}))
    assert "<html" in whole
    assert "<html" not in part
    assert 'id="live"' not in part
    assert 'hx-swap-oob="innerHTML"' in part


# ------------------------------------------------------------------------------------------------------------- overview


def test_an_empty_installation_shows_the_enrolment_commands(person, db: None):
    page = text(person("admin").get("/"))
    assert "python manage.py cluster add" in page
    assert "python -m agents" in page


def test_the_overview_counts_and_lists_needs(person, world: World):
    world.fault(95)  # no rule lists it
    world.work()
    page = text(person("viewer").get("/"))
    assert "Xid 95 on gpu-1: not handled yet" in page
    assert "No rule covers Xid 95." in page
    assert "does not apply" not in page


def test_the_overview_shows_a_running_rescue(person, world: World):
    world.fault()
    world.until_reboot_is_asked()
    page = text(person("viewer").get("/"))
    assert f'href="/rescues/{world.rescue().pk}/"' in page
    assert "All clear." in page


def test_the_overview_costs_the_same_for_one_node_and_for_many(person, world: World):
    client = person("viewer")
    client.get("/")
    with CaptureQueriesContext(connection) as few:
        client.get("/")
    for index in range(2, 30):
        world.kube.add_node(f"gpu-{index}", gpus=8)
    world.sync()
    with CaptureQueriesContext(connection) as many:
        client.get("/")
    assert len(many) == len(few)


def test_the_map_groups_nodes_by_their_labels_in_places_that_no_state_changes(person, world: World):
    client, costs = person("viewer"), []

    def groups(query: str = "") -> list[tuple[str, list[str]]]:
        with CaptureQueriesContext(connection) as queries:
            packed = client.get(f"/map.json{query}").json()
        costs.append(len(queries))
        return [(group["name"], [name for name, *_rest in group["nodes"]]) for group in packed["groups"]]

    assert groups("?by=rack") == [("", ["gpu-1"])]
    for number, rack in ((2, "r10"), (10, "r9"), (9, "r9")):
        world.kube.add_node(f"gpu-{number}", labels={"topology.kubernetes.io/rack": rack, "pool": "a", "place": "x"})
    world.sync()
    before = groups("?by=rack")
    assert before == [("r9", ["gpu-9", "gpu-10"]), ("r10", ["gpu-2"]), ("", ["gpu-1"])]
    assert costs == [11, 11]  # two of them the clusters' topology and the labels
    world.fault(95, node="gpu-10")
    world.work()
    assert groups("?by=rack") == before
    assert groups() == groups("?by=nonsense") == [("a", ["gpu-2", "gpu-9", "gpu-10"]), ("", ["gpu-1"])]
    Cluster.objects.update(topology={"leaf": "place"})
    assert groups("?by=leaf") == [("x", ["gpu-2", "gpu-9", "gpu-10"]), ("", ["gpu-1"])]
    packed = client.get("/map.json").json()
    states = {name: packed["states"][state]["name"] for group in packed["groups"] for name, state, _g in group["nodes"]}
    assert states == {"gpu-1": "healthy", "gpu-2": "healthy", "gpu-9": "healthy", "gpu-10": "faulty"}


def test_the_table_of_the_map_has_the_same_groups_and_filter(person, world: World):
    world.kube.add_node("gpu-2", labels={"topology.kubernetes.io/rack": "r 9"})
    world.sync()
    world.fault(95, node="gpu-2")
    world.work()
    client = person("viewer")
    table = text(client.get("/map/?by=rack"))
    assert "/nodes/?cluster=c1&amp;label=topology.kubernetes.io%2Frack%3Dr+9" in table
    assert '/nodes/c1/gpu-2/"' in table
    assert '/nodes/c1/gpu-1/"' not in table
    assert "gpu-2" not in text(client.get("/map/?state=healthy"))
    assert "gpu-1" in text(client.get("/map/?find=PU-1"))
    page = text(client.get("/?by=rock&state=healthy,ill&zoom=5&find=x"))
    for problem in ("by=rock", "state=ill", "zoom=5"):
        assert f"<code>{problem}</code>" in page
    assert "<code>find=" not in page


# ---------------------------------------------------------------------------------------------------------------- nodes


def test_search_leads_to_the_one_node_of_that_name(person, world: World):
    client = person("viewer")
    assert client.get("/search/", {"q": "gpu-1"}).url == "/nodes/c1/gpu-1/"
    assert client.get("/search/", {"q": "gpu"}).url == "/nodes/?q=gpu"


def test_no_match_and_no_node_have_different_texts(person, world: World):
    client = person("viewer")
    assert "No nodes match these filters" in text(client.get("/nodes/?q=zzz"))
    world.node().delete()
    assert "No cluster yet" in text(client.get("/nodes/"))


def test_the_node_page_shows_why_no_action_runs(person, world: World):
    world.fault(95)
    world.work()
    page = text(person("viewer").get("/nodes/c1/gpu-1/"))
    assert "Why is this node not healing?" in page
    assert "It covers 48, 62, 64, not 95." in page
    assert page.index('id="why-title"') < page.index('class="facts-bar"'), "on a phone the facts fill two screens"


def test_the_node_page_shows_the_owner_of_the_cordon(person, world: World):
    client = person("viewer")
    assert "schedulable" in text(client.get("/nodes/c1/gpu-1/"))
    world.fault()
    world.until_reboot_is_asked()
    world.sync()
    assert "cordoned by the portal" in text(client.get("/nodes/c1/gpu-1/"))


def test_an_act_is_previewed_then_requested_with_a_reason(person, world: World):
    client = person("operator", name="omar")
    world.kube.add_pod("train", "worker-0", node="gpu-1")
    preview = text(client.get("/nodes/c1/gpu-1/drain/", headers={"HX-Request": "true"}))
    assert "train/worker-0" in preview
    assert "1 pod will be evicted" in preview
    assert not Rescue.objects.exists()

    refused = client.post("/nodes/c1/gpu-1/drain/", {"reason": ""}, headers={"HX-Request": "true"})
    assert refused.status_code == 422
    assert "<html" not in text(refused)
    assert not Rescue.objects.exists()

    done = client.post("/nodes/c1/gpu-1/drain/", {"reason": "ticket 7"}, headers={"HX-Request": "true"})
    rescue = Rescue.objects.get()
    assert done.headers["HX-Redirect"] == f"/rescues/{rescue.pk}/"
    assert (rescue.requested_by, rescue.reason) == ("user:omar", "ticket 7")


def test_a_large_drain_asks_for_the_nodes_name(person, world: World):
    client = person("operator")
    for index in range(12):
        world.kube.add_pod("train", f"worker-{index}", node="gpu-1")
    refused = client.post("/nodes/c1/gpu-1/drain/", {"reason": "r", "name": "gpu-2"})
    assert refused.status_code == 422
    assert "Does not match gpu-1." in text(refused)
    assert client.post("/nodes/c1/gpu-1/drain/", {"reason": "r", "name": "gpu-1"}).status_code == 302


def test_a_blocked_act_is_shown_in_the_preview_and_refused(person, world: World):
    world.fault()
    world.work()
    client = person("operator")
    assert "is open on this node" in text(client.get("/nodes/c1/gpu-1/cordon/"))
    response = client.post("/nodes/c1/gpu-1/cordon/", {"reason": "r"})
    assert response.status_code == 422
    assert Rescue.objects.count() == 1


# ---------------------------------------------------------------------------------------------- incidents and rescues


def test_an_incident_shows_its_meaning_and_its_decision(person, world: World):
    world.fault(79)
    world.work()
    page = text(person("viewer").get(f"/incidents/{Incident.objects.get().pk}/"))
    assert "GPU no longer reachable over PCI Express" in page
    assert "It covers 48, 62, 64, not 79." in page


def test_a_healed_rescue_shows_its_history(person, world: World):
    world.kube.add_pod("train", "worker-0", node="gpu-1")
    world.fault()
    world.until_reboot_is_asked()
    world.reboot()
    rescue = world.until("succeeded")
    page = text(person("viewer").get(f"/rescues/{rescue.pk}/"))
    assert "gpu-1 was rescued in" in page
    assert "and verified healthy" in page
    assert all(f'id="step-{number}"' in page for number in range(1, 7))
    assert "pod train/worker-0" in page  # a call, with its answer
    assert "unschedulable no → yes" in page
    assert f"/api/v1/rescues/{rescue.pk}" in page


def test_each_tab_lists_what_it_counts(person, world: World):
    world.fault()
    world.work()
    page = text(person("viewer").get("/rescues/?tab=active"))
    assert f"#{world.rescue().pk}" in page
    assert "No matching rescue" in text(person("viewer").get("/rescues/?tab=failed"))


class TestApproval:
    @pytest.fixture
    def held(self, db: None):
        world = World(policy=APPROVE)
        world.fault()
        world.work()
        yield world.rescue()
        world.uninstall()

    def test_an_approval_request_is_first_on_the_list(self, person, held: Rescue):
        assert "Approve the rescue of gpu-1 (Xid 62)?" in text(person("viewer").get("/"))
        assert "#" + str(held.pk) in text(person("viewer").get("/rescues/?tab=approval"))

    def test_an_operator_may_not(self, person, held: Rescue):
        client = person("operator")
        assert f"/rescues/{held.pk}/approve/" not in text(client.get(f"/rescues/{held.pk}/"))
        assert client.post(f"/rescues/{held.pk}/approve/", {"reason": "r"}).status_code == 403

    def test_an_approver_approves_the_shown_plan(self, person, held: Rescue):
        client = person("approver", name="appa")
        other = client.post(f"/rescues/{held.pk}/approve/", {"reason": "r", "plan_hash": "other"})
        assert other.status_code == 422
        assert not Approval.objects.exists()
        answer = {"reason": "go", "plan_hash": held.plan_hash}
        assert client.post(f"/rescues/{held.pk}/approve/", answer).status_code == 302
        assert Approval.objects.get().by == "user:appa"
        late = client.post(f"/rescues/{held.pk}/approve/", answer)
        assert late.status_code == 422
        assert "is not waiting for approval" in text(late)


# ------------------------------------------------------------------------------------------------------------- policies


def test_policy_errors_are_shown_with_their_line(person, world: World):
    broken = HEAL.replace("waittime: 10min", "waittime: 10x")
    page = text(person("admin").post("/policies/validate/", {"text": broken}))
    assert 'data-line="11"' in page
    assert "Fix it to publish" in page


def test_saving_applies_the_text_or_shows_the_errors(person, world: World):
    client = person("admin", name="anna")
    agreement = client.post("/policies/validate/", {"text": CORDON}).context["agreement"]
    saved = client.post("/policies/edit/", {"text": CORDON, "reason": "try", "agreed": agreement})
    assert (saved.status_code, saved.url) == (302, "/policies/cordon/")
    assert Policy.objects.get(name="cordon").revision == 1

    stale = client.post("/policies/cordon/edit/", {"text": CORDON + "\n", "reason": "r", "expected": "7"})
    assert stale.status_code == 422
    assert "You edited revision 7" in text(stale)


def test_a_revision_shows_its_changes(person, world: World):
    client = person("admin")
    client.post("/policies/heal/edit/", {"text": HEAL.replace("10min", "30min"), "reason": "longer", "expected": "1"})
    page = text(client.get("/policies/heal/"))
    assert "<del>" in page
    assert "<ins>" in page
    assert "10min" in page
    assert "You are viewing revision 1" in text(client.get("/policies/heal/?revision=1"))


# -------------------------------------------------------------------------------------------------- audit and the rest


def test_the_chain_is_verified_on_the_page(person, world: World):
    world.fault()
    world.work()
    client = person("viewer")

    def verified() -> str:
        answer = client.post("/audit/verify/")
        assert answer.status_code == 302
        assert "hx-get" in text(client.get(answer.url, headers={"HX-Request": "true"}))  # it asks again
        tasks.advance_verifications()
        for pk in verifications.due(now=timezone.now()):
            verifications.advance(pk, clock=timezone.now)
        return text(client.get(answer.url))

    assert "chain intact" in verified()
    with unguarded():
        Entry.objects.filter(sequence=1, cluster="c1").update(actor="mallory")
    assert "broken at entry 1" in verified()


def test_a_refused_request_is_on_the_audit_page_and_on_the_nodes(person, world: World):
    fleet.pause(cluster=world.cluster, reason="fire in the hall", actor="user:ann", now=world.now)
    with pytest.raises(services.RescueRefused):
        services.request(world.node(), "drain", actor="user:bo", reason="it is loud", now=world.now)
    client = person("viewer")
    for page, title in (("/audit/?verb=request", "request.refused"), ("/nodes/c1/gpu-1/", "Request refused")):
        shown = text(client.get(page))
        assert title in shown
        assert "Automation is paused: fire in the hall" in shown


def test_an_agents_late_result_is_on_the_page_of_its_rescue(person, world: World):
    type(world.cluster).objects.update(reboot="agent")
    world.fault(62)
    world.until_reboot_is_asked()
    world.now += timedelta(minutes=6)
    fleet.expire_commands(now=world.now)
    agents.answers(world, agents.commands("reboot")[0], "failed", "the unit is masked")
    page = text(person("viewer").get(f"/rescues/{world.rescue().pk}/"))
    assert "command.late" in page
    assert "The agent answered after the deadline: failed: the unit is masked" in page


def test_older_entries_are_reached_by_key(person, world: World, monkeypatch):
    monkeypatch.setattr("kcover_portal.console.views.audit.PAGE_ROWS", 2)
    world.fault()
    world.work()
    client = person("viewer")
    newest = list(Entry.objects.order_by("-pk").values_list("pk", flat=True))
    first = text(client.get("/audit/"))
    assert f"before={newest[1]}" in first
    assert f'id="data-{newest[2]}"' in text(client.get(f"/audit/?before={newest[1]}"))


def test_pausing_everything_is_confirmed_audited_and_shown(person, world: World):
    client = person("operator", name="omar")
    assert client.post("/pause/", {"reason": "power works"}).status_code == 302
    assert runtime.installation().mode == "paused"
    page = text(client.get("/nodes/"))
    assert "power works" in page
    entry = Entry.objects.get(verb="automation.paused")
    assert (entry.actor, entry.data["reason"]) == ("user:omar", "power works")
    assert client.post("/resume/", {"reason": "done"}).status_code == 302
    assert runtime.installation().mode == "enforce"


def test_a_pause_takes_effect_at_once_and_its_reason_follows(person, world: World):
    client = person("operator", name="omar")
    assert client.post("/pause/", headers={"HX-Request": "true"}).status_code == 200
    assert runtime.installation().mode == "paused"
    assert client.post("/pause/reason/", {"reason": ""}).status_code == 422
    assert client.post("/pause/reason/", {"reason": "power works"}).status_code == 302
    assert client.post("/pause/").status_code == 302  # a second click forgets nothing
    assert (runtime.installation().mode, runtime.installation().reason) == ("paused", "power works")
    assert person("viewer").post("/pause/reason/", {"reason": "r"}).status_code == 403
    assert client.post("/resume/", {"reason": "done"}).status_code == 302
    late = client.post("/pause/reason/", {"reason": "too late"})
    assert (late.status_code, runtime.installation().mode) == (422, "enforce")


def test_a_resume_ends_only_the_pause_that_its_dialog_shows(person, world: World):
    """A click on Resume for a drill ended the pause of somebody who had seen the wrong nodes drained."""
    bob, ann = person("operator", name="bob"), person("operator", name="ann")
    bob.post("/pause/", {"reason": "a drill"})
    shown = bob.get("/resume/", headers={"HX-Request": "true"})
    assert "a drill" in text(shown)
    seen = shown.context["form"]["seen"].value()
    ann.post("/pause/", {"reason": "wrong nodes"})
    refused = bob.post("/resume/", {"reason": "drill over", "seen": seen})
    assert (refused.status_code, runtime.installation().mode) == (422, "paused")
    assert "wrong nodes" in text(refused)
    again = refused.context["form"]["seen"].value()
    assert bob.post("/resume/", {"reason": "ann agrees", "seen": again}).status_code == 302
    assert runtime.installation().mode == "enforce"


def test_pausing_everything_needs_the_role_everywhere(person, world: World):
    assert person("admin", cluster=world.cluster).post("/pause/", {"reason": "r"}).status_code == 403


def test_preferences_stay_with_the_person(person, world: World):
    client = person("viewer", name="vera")
    response = client.post("/preferences/", {"language": "zh-hans", "zone": "Asia/Shanghai", "next": "https://evil/"})
    assert response.url == "/"
    vera = User.objects.get(username="vera")
    assert (vera.language, vera.zone) == ("zh-hans", "Asia/Shanghai")
    page = text(client.get("/"))
    assert 'lang="zh-hans"' in page
    assert "总览" in page
    assert 'data-zone="Asia/Shanghai"' in page
    account = client.get("/account/")
    assert {"Asia/Shanghai", "Europe/Berlin", "UTC"} <= set(account.context["zones"])
    assert "PRC" not in account.context["zones"]
    assert re.search(r"selected\s*>Asia/Shanghai<", text(account))
    client.post("/preferences/", {"zone": ""})
    assert "data-zone" not in text(client.get("/"))


def test_an_unknown_address_shows_the_error_page(person, world: World):
    response = person("viewer").get("/nowhere/")
    assert response.status_code == 404
    assert "Page not found" in text(response)


def test_a_role_that_is_taken_away_counts_at_once(person, world: World):
    client = person("operator", name="omar")
    RoleBinding.objects.filter(user__username="omar").delete()
    assert client.get("/").status_code == 403
