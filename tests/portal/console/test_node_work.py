"""What runs on a node, which rules are for it, and its timeline without doubles."""

from kcover_portal.accounts.models import Role
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.test_actions_restart_jobs import add_job

PAGE = "/nodes/c1/gpu-1/"
WORK = f"{PAGE}work/"
ASK = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask-first}
spec: {rules: [{priority: 99, mode: approve, errorCode: ["92"], actions: [{name: cordon}, {name: drain}]}]}
"""


def test_the_pods_of_a_node_show_the_effect_of_a_drain_and_their_jobs_consent(make, person):
    jobs.forget()
    world = make(nodes=2)
    add_job(world, "llm", "gpu-1")
    world.kube.add_pod("kube-system", "exporter", node="gpu-1", owner_kind="DaemonSet", owner_name="exporter")
    world.kube.add_pod("train", "elsewhere", node="gpu-2")
    client = person("viewer")
    assert f'hx-get="{WORK}"' in client.get(PAGE).content.decode()
    found = client.get(WORK)
    assert [(one.pod.name, one.moves) for one in found.context["work"].pods] == [("llm-0", True), ("exporter", False)]
    assert [job.name for job in found.context["work"].jobs] == ["llm"]
    assert [(one.candidate.name, one.mode) for one in found.context["rules"]] == [("heal#1", "enforce")]
    assert "exporter" in found.content.decode()
    world.cluster.mode = "shadow"
    world.cluster.save()
    assert [one.mode for one in client.get(WORK).context["rules"]] == ["shadow"]
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person(Role.VIEWER, cluster=other).get(WORK).status_code == 404


def test_a_cluster_that_does_not_answer_is_shown_as_silent(make, person):
    world = make(nodes=1)
    world.kube.fail("list_pods", port.Unavailable("down"))
    found = person("viewer").get(WORK)
    assert (found.status_code, found.context["work"].pods) == (200, ())
    assert found.context["work"].unavailable.code == "cluster_unavailable"


def test_the_opening_of_a_rescue_is_once_in_the_timeline(make, person):
    world = make(nodes=2)
    world.fault(62)
    world.work()
    client = person("operator", name="ann")
    moments = client.get(PAGE).context["moments"]
    assert [moment.kind for moment in moments if moment.page == "rescue" and not moment.anchor] == ["rescue"]
    services.request(world.node("gpu-2"), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    [opened] = [m for m in client.get("/nodes/c1/gpu-2/").context["moments"] if m.text == "user:ann · ticket 7"]
    assert opened.kind == "rescue"


def test_what_happens_once_is_one_entry_of_the_timeline(make, person):
    world = make(nodes=3, policy=ASK)
    for node in ("gpu-1", "gpu-2"):
        world.fault(92, node=node)
    world.work()
    denied, cancelled = Rescue.objects.order_by("node__name")
    services.reject(denied, actor="user:ann", reason="the job", now=world.now, via="console")
    services.cancel(cancelled, actor="user:ann", reason="not now", now=world.now)
    client = person("viewer")
    for node, why in (("gpu-1", "the job"), ("gpu-2", "not now")):
        moments = client.get(f"/nodes/c1/{node}/").context["moments"]
        assert [moment.kind for moment in moments] == ["end", "step", "rescue", "fault"]
        assert why in moments[0].text
    world.fault(79, node="gpu-3")
    world.work()
    incident = Incident.objects.get(node__name="gpu-3")
    incidents.close_by_hand(incident, actor="user:ann", reason="a loose cable", now=world.now)
    moments = client.get("/nodes/c1/gpu-3/").context["moments"]
    assert sorted(moment.kind for moment in moments) == ["decision", "fault", "fault"]
    assert [moment.record for moment in moments if "a loose cable" in moment.text] == [incident.pk]


def test_the_guards_that_let_a_request_pass_are_no_entry_of_their_own(make, person):
    world = make(nodes=2)
    services.request(world.node(), "cordon", actor="user:ann", reason="ticket 7", now=world.now)
    world.work()
    moments = person("viewer").get(PAGE).context["moments"]
    assert [moment.kind for moment in moments] == ["end", "step", "rescue"]


def test_a_dashboard_is_linked_with_escaped_names(make, person, settings):
    world = make(nodes=1)
    client = person("viewer")
    assert "grafana" not in client.get(PAGE).content.decode()
    settings.KCOVER_GRAFANA_URL = "https://grafana.example/d?c={cluster}&n={node}&from={from}&to={to}"
    assert "https://grafana.example/d?c=c1&amp;n=gpu-1&amp;from=" in client.get(PAGE).content.decode()
    world.fault(62, node="gpu-1")
    incident = world.node("gpu-1").incidents.get()
    found = client.get(f"/incidents/{incident.pk}/").context["dashboard"]
    since = int(incident.opened_at.timestamp() * 1000) - 1_800_000
    assert found.startswith(f"https://grafana.example/d?c=c1&n=gpu-1&from={since}&to=")
