"""Pages of check runs, validations and preflight: what they show, who may act, and no more queries for more rows."""

import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kcover.validation import profiles
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.checks.services import validation_profiles, validations
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_selection
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight.models import PairPlan, PreflightRun
from tests.portal.checks.test_check_runs import FINE, answer
from tests.portal.checks.test_validations import conclude, passes
from tests.portal.console.conftest import Person
from tests.portal.preflight.test_runs import raw, receive
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy="", nodes=4)
    for number in range(1, 5):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def words(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200, response.content
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def begin(world: World) -> CheckRun:
    nodes = node_selection.nodes(world.cluster)
    run = check_runs.begin(world.cluster, nodes, checks=("remapped",), actor="user:ann", now=world.now, batch=2)
    check_runs.advance(run.pk, now=world.now)
    return run


def test_a_run_shows_its_progress_and_failures_first(world: World, person: Person) -> None:
    client = person("operator")
    assert "No check runs yet" in words(client, "/checks/")
    run = begin(world)
    answer(world, "gpu-1", FINE)
    answer(world, "gpu-2", {**FINE, "status": "fail", "message": "a row waits for a reset"})
    check_runs.advance(run.pk, now=world.now)
    listed = words(client, "/checks/")
    assert "#1" in listed.replace(f"#{run.pk}", "#1")
    assert "2/4" in listed
    assert "1 with problems" in listed
    page = words(client, f"/checks/{run.pk}/")
    order = [page.index(name) for name in ("gpu-3", "gpu-4", "gpu-2", "gpu-1")]
    assert order == sorted(order)  # under way, wrong, well
    assert "REMAPPED ROWS Failed" in page
    assert "a row waits for a reset" in page
    assert "Stop run" in page
    assert "Stop run" not in words(person("viewer"), f"/checks/{run.pk}/")
    assert "No runs match these filters" in words(client, "/checks/?state=finished")


def test_a_person_begins_and_stops_a_run(world: World, person: Person) -> None:
    client = person("operator", name="bo")
    asked = {"cluster": "c1", "checks": ["remapped", "dcgm"], "level": "2", "host": "gpu-1, gpu-3,", "batch": "1"}
    done = client.post("/checks/new/", asked)
    run = CheckRun.objects.get()
    assert (done.status_code, done.headers["Location"]) == (302, f"/checks/{run.pk}/")
    assert (run.checks, run.level, run.batch, run.total, run.requested_by) == (["remapped", "dcgm"], 2, 1, 2, "user:bo")
    assert client.get(f"/checks/{run.pk}/stop/").status_code == 200
    assert client.post(f"/checks/{run.pk}/stop/", {"reason": "wrong"}).status_code == 302
    again = client.post(f"/checks/{run.pk}/stop/", {"reason": "wrong"})
    assert (again.status_code, b"has ended" in again.content) == (422, True)


def test_errors_of_the_check_form_are_shown(world: World, person: Person) -> None:
    client = person("operator")
    asked = {"cluster": "c1", "checks": ["remapped"], "level": "1"}
    for change, said in (
        ({"host": "gpu-9"}, "has no node gpu-9"),
        ({"by": "labels", "which": "a=="}, "Must be key=value"),
        ({"checks": []}, "This field is required"),
        ({"level": "7"}, "Select a valid choice"),
        ({"batch": "0"}, "greater than or equal to 1"),
    ):
        response = client.post("/checks/new/", {**asked, **change})
        assert (response.status_code, said in response.content.decode()) == (422, True), said
    assert not CheckRun.objects.exists()


def test_viewers_and_people_of_other_clusters_cannot_begin_a_run(world: World, person: Person) -> None:
    asked = {"cluster": "c1", "checks": ["remapped"], "level": "1"}
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer").post("/checks/new/", asked).status_code == 403
    assert person("operator", cluster=other).post("/checks/new/", asked).status_code == 422
    run = begin(world)
    assert person("viewer").post(f"/checks/{run.pk}/stop/", {"reason": "x"}).status_code == 403
    assert person("viewer", cluster=other).get(f"/checks/{run.pk}/").status_code == 404


def test_preflight_shows_the_matrix_and_the_verdict(world: World, person: Person) -> None:
    client = person("viewer")
    assert "No preflight reports yet" in words(client, "/preflight/")
    for node in range(1, 5):
        failed = {(0, 1), (1, 4), (2, 3)} if node == 2 else {(0, 2)} if node == 1 else set()
        receive(world, raw(node, failed=failed))
    run = PreflightRun.objects.get()
    listed = words(client, "/preflight/")
    assert "ml/job" in listed
    assert "4/4" in listed
    page = words(client, f"/preflight/{run.pk}/")
    assert "gpu-2 failed all 3 rounds that count." in page
    assert page.index("gpu-2 Slow") < page.index("gpu-1 No problems")
    assert "gpu-1 reported by both" in page  # in the row of gpu-2
    assert "gpu-2 reported by peer" in page  # in the rows of gpu-3 and gpu-4
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer", cluster=other).get(f"/preflight/{run.pk}/").status_code == 404
    assert "第 1 轮" in client.get(f"/preflight/{run.pk}/", headers={"Accept-Language": "zh-hans"}).content.decode()


def test_a_waiting_run_shows_its_end_and_an_abnormal_node_its_reason(world: World, person: Person) -> None:
    receive(world, raw(3, gpu_check=2))
    receive(world, raw(1))
    page = words(person("viewer"), f"/preflight/{PreflightRun.objects.get().pk}/")
    assert "Waiting for reports" in page
    assert "Expires" in page
    assert "Abnormal gpu_check" in page
    assert "2/4" in page


@pytest.mark.parametrize("kind", ["check", "preflight"])
def test_queries_do_not_grow_with_the_rows(world: World, person: Person, kind: str) -> None:
    client, counts = person("viewer"), []
    for number in (1, 3):
        if kind == "check":
            begin(world)
            paths = ["/checks/", f"/checks/{CheckRun.objects.latest('pk').pk}/"]
        else:
            for node in range(1, number + 1):
                receive(world, raw(node), uid="same")
            receive(world, raw(1), uid=f"u{number}")
            paths = ["/preflight/", f"/preflight/{PreflightRun.objects.get(uid='same').pk}/"]
        for path in paths:
            with CaptureQueriesContext(connection) as captured:
                words(client, path)
            counts.append(len(captured))
    assert counts[:2] == counts[2:]


def test_pair_tests_are_begun_shown_and_cancelled(world: World, person: Person) -> None:
    Cluster.objects.update(nccl_image="pytorch:2")
    client, viewer = person("operator", name="bo"), person("viewer")
    assert client.get("/preflight/plans/").context["page"].object_list.count() == 0
    asked = {"cluster": "c1", "host": "gpu-1, gpu-2, gpu-3", "rounds": 2, "rule": "confirmed", "threshold": 350}
    assert viewer.post("/preflight/plans/new/", asked).status_code == 403
    refused = client.post("/preflight/plans/new/", asked | {"host": "gpu-1"})
    assert (refused.status_code, PairPlan.objects.count()) == (422, 0)
    done = client.post("/preflight/plans/new/", asked)
    plan = PairPlan.objects.get()
    page = f"/preflight/plans/{plan.pk}/"
    assert (done.status_code, done.headers["Location"]) == (302, page)
    assert [row.verdict for row in client.get(page).context["matrix"].rows] == ["", "", ""]
    assert client.get(page).context["cancels"]
    assert not viewer.get(page).context["cancels"]
    assert viewer.post(f"{page}cancel/", {"reason": "x"}).status_code == 403
    assert client.post(f"{page}cancel/", {"reason": "x"}).status_code == 302
    plan.refresh_from_db()
    assert plan.state == "cancelled"
    PairPlan.objects.update(state="finished", slow=["gpu-2"], inconclusive=["gpu-3"])
    rows = client.get(page).context["matrix"].rows
    assert [(row.node, row.verdict) for row in rows] == [
        ("gpu-2", "slow"),
        ("gpu-3", "inconclusive"),
        ("gpu-1", "clear"),
    ]
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer", cluster=other).get(page).status_code == 404


@pytest.mark.parametrize("name", ["check-runs", "preflight-runs"])
def test_lists_are_exported(world: World, person: Person, name: str) -> None:
    begin(world)
    receive(world, raw(1))
    body = b"".join(person("viewer").get(f"/export/{name}.csv").streaming_content).decode()
    assert body.count("\n") == 2
    assert body.startswith("id,cluster,")


# ---------------------------------------------------------------------------------------------------------- validations


def test_a_person_validates_nodes_and_sees_the_verdicts(world: World, person: Person) -> None:
    client = person("operator", name="bo")
    assert client.get("/checks/validations/").context["page"].object_list.count() == 0
    asked = {"cluster": "c1", "profile": "light", "host": "gpu-1, gpu-2", "reason": "new boards"}
    done = client.post("/checks/validations/new/", asked)
    row = Validation.objects.get()
    page = f"/checks/validations/{row.pk}/"
    assert (done.status_code, done.headers["Location"]) == (302, page)
    assert (row.profile, row.reason, row.requested_by, row.nodes.count()) == ("light", "new boards", "user:bo", 2)
    conclude(world, row)
    passes(world, "gpu-1")
    passes(world, "gpu-2", dcgm="skipped")
    conclude(world, row)
    shown = client.get(page).context["nodes"]
    assert [(one.state, {result["proof"] for result in results}) for one, results in shown] == [
        ("passed", {"hardware"}),
        ("error", {"hardware", "none"}),
    ]
    assert [one.first_node for one in client.get("/checks/").context["validations"]] == ["gpu-1"]
    node = client.get("/nodes/c1/gpu-2/")
    assert node.context["validated"].state == "error"
    assert page in node.content.decode()


def test_a_validation_is_cancelled_by_whoever_may(world: World, person: Person) -> None:
    client = person("operator")
    row = validations.begin(
        world.cluster, node_selection.nodes(world.cluster), profile="full", actor="user:x", now=world.now
    )
    page, cancel = f"/checks/validations/{row.pk}/", f"/checks/validations/{row.pk}/cancel/"
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer", cluster=other).get(page).status_code == 404
    viewer = person("viewer")
    assert cancel not in viewer.get(page).content.decode()
    assert viewer.post(cancel, {"reason": "x"}).status_code == 403
    assert viewer.get("/checks/validations/new/").status_code == 403
    assert cancel in client.get(page).content.decode()
    assert client.post(cancel, {"reason": "x"}).status_code == 302
    assert client.post(cancel, {"reason": "x"}).status_code == 422


def test_errors_of_the_validation_form_are_shown_at_their_fields(world: World, person: Person) -> None:
    client = person("operator")
    asked = {"cluster": "c1", "profile": "light", "host": "gpu-1"}
    for change, field in (
        ({"host": "gpu-9"}, "which"),
        ({"profile": "deep"}, "profile"),
        ({"nodelabel": "a==", "host": ""}, "which"),
        ({"nodelabel": "a"}, "by"),  # of two older fields, none is taken
    ):
        response = client.post("/checks/validations/new/", {**asked, **change})
        assert (response.status_code, list(response.context["form"].errors)) == (422, [field])
    assert not Validation.objects.exists()


def test_queries_do_not_grow_with_validations(world: World, person: Person) -> None:
    client, counts = person("viewer"), []
    for names in (["gpu-1"], ["gpu-1", "gpu-2", "gpu-3"]):
        nodes = node_selection.nodes(world.cluster, hosts=names)
        row = validations.begin(world.cluster, nodes, profile="light", actor="user:x", now=world.now)
        for path in ("/checks/", "/checks/validations/", f"/checks/validations/{row.pk}/"):
            with CaptureQueriesContext(connection) as captured:
                words(client, path)
            counts.append(len(captured))
    assert counts[:3] == counts[3:]


def test_admins_change_a_profile_and_go_back_to_the_default(world: World, person: Person) -> None:
    page, changed = "/checks/profiles/light/", '{"checks": [{"check": "pciebw", "threshold": 20}]}'
    assert person("operator").get(page).status_code == 403
    assert page not in person("operator").get("/checks/validations/").content.decode()
    admin = person("admin")
    assert page in admin.get("/checks/validations/").content.decode()
    assert admin.get(page).status_code == 200
    assert admin.get("/checks/profiles/deep/").status_code == 404
    surrogate, level = '{"checks": [{"check": "pciebw"}], "\\ud800": 1}', '{"checks": [{"check": "dcgm", "level": 9}]}'
    for text in ("{", "[" * 9_999, '{"checks": NaN}', surrogate, level):
        refused = admin.post(page, {"document": text, "reason": "x"})
        assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["document"])
    assert "checks/0/level: " in refused.context["form"].errors["document"][0]
    assert admin.post(page, {"document": changed, "reason": "gen 5"}).status_code == 302
    assert validation_profiles.named("light").limits == {"threshold": 20}
    assert Entry.objects.get(verb="profile.changed").data["reason"] == "gen 5"
    assert admin.post(page, {"document": "", "reason": "x"}).status_code == 302
    assert validation_profiles.named("light") == profiles.DEFAULTS["light"]
