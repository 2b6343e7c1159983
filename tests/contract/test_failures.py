"""The verbs against a failing API server. Only the simulator can fail on request."""

import contextlib
import threading

import pytest

from kcover_portal.kube import live, port
from tests.contract import over_http, rbac

pytestmark = pytest.mark.simulator_only
PATCH, EVICT = "PATCH /api/v1/nodes/", "POST /eviction"
CORDON = port.NodeChange(cordon=True)


@pytest.fixture
def node(simulator):
    simulator.node("gpu-1")
    return "gpu-1"


@pytest.mark.parametrize("fault", [500, 502, 503, 504, 429, "timeout", "cut"])
def test_a_failed_read_is_retried_later(simulator, node, fault):
    simulator.break_next(fault, "GET /api/v1/nodes")
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.list_nodes()
    assert not caught.value.ambiguous
    assert caught.value.__cause__ is not None
    assert caught.value.retry_after == (1 if fault == 429 else None)
    assert [item.name for item in simulator.cluster.list_nodes().items] == [node]


@pytest.mark.parametrize("fault", [500, 502, 503, 504, "timeout", "cut"])
def test_a_write_that_fails_may_have_happened_and_is_sent_once(simulator, node, fault):
    simulator.break_next(fault, PATCH)
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.apply_node(node, CORDON)
    assert caught.value.ambiguous
    assert simulator.writes() == 1
    assert not simulator.cluster.get_node(node).unschedulable


@pytest.mark.parametrize("fault", [500, 504, "timeout", "cut"])
def test_the_answer_is_lost_but_the_work_is_done(simulator, node, fault):
    simulator.break_next(fault, PATCH, after=True)
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.apply_node(node, CORDON)
    assert caught.value.ambiguous
    before, after = simulator.cluster.apply_node(node, CORDON)
    assert before == after
    assert after.unschedulable
    assert simulator.writes() == 1


def test_a_busy_server_did_not_begin_the_write(simulator, node):
    simulator.break_next(429, PATCH)
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.apply_node(node, CORDON)
    assert (caught.value.ambiguous, caught.value.retry_after) == (False, 1)


def test_a_conflict_is_resolved_on_the_new_version(simulator, node):
    simulator.break_next(409, PATCH, count=2)
    _, after = simulator.cluster.apply_node(node, CORDON)
    assert after.unschedulable
    assert simulator.writes() == 3


def test_conflicts_without_end(simulator, node):
    simulator.break_next(409, PATCH, count=-1)
    with pytest.raises(port.Conflict):
        simulator.cluster.apply_node(node, CORDON)


@pytest.mark.parametrize(("fault", "ambiguous"), [(429, False), (500, True), ("timeout", True), ("cut", True)])
def test_an_eviction_in_trouble_is_not_blocked_by_a_budget(simulator, node, fault, ambiguous):
    uid = simulator.pod("train", node=node)["metadata"]["uid"]
    simulator.break_next(fault, EVICT)
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.evict(simulator.namespace, "train", uid=uid)
    assert caught.value.ambiguous is ambiguous
    assert simulator.writes() == 1


def test_a_conflict_about_the_same_pod_is_no_departure(simulator, node):
    uid = simulator.pod("train", node=node)["metadata"]["uid"]
    simulator.break_next(409, EVICT)
    with pytest.raises(port.Conflict):
        simulator.cluster.evict(simulator.namespace, "train", uid=uid)


def test_a_job_whose_answer_was_lost_is_there_once(simulator):
    spec = port.JobSpec(name="reboot", namespace="kcover-jobs", node="gpu-1", image="i", command=("reboot",))
    simulator.break_next("cut", "POST /jobs", after=True)
    with pytest.raises(port.Unavailable) as caught:
        simulator.cluster.ensure_job(spec)
    assert caught.value.ambiguous
    assert simulator.cluster.ensure_job(spec).exists


def test_a_forgotten_history_has_to_be_listed_again(simulator, node):
    old = simulator.cluster.list_nodes().resource_version
    simulator.cluster.apply_node(node, CORDON)
    simulator.compact()
    with pytest.raises(port.Expired):
        list(simulator.cluster.watch_nodes(old, timeout=1))


def test_a_watch_that_the_server_closes_ends(simulator, node):
    version = simulator.cluster.list_nodes().resource_version
    watch = simulator.cluster.watch_nodes(version, timeout=30)
    assert next(watch).kind == "BOOKMARK"
    simulator.inside(simulator.api.cut_watches)
    with contextlib.suppress(port.Unavailable):
        assert all(event.kind == "BOOKMARK" for event in watch)


def test_refused_credentials_are_loaded_again(simulator, node):
    tokens = iter([over_http.unused_token(), over_http.PORTAL])
    good = live.loader(simulator.kubeconfig)

    def load():
        token = next(tokens)
        way_in = good()
        return type(way_in)(host=way_in.host, authorization=lambda: f"Bearer {token}")

    cluster = live.LiveCluster(rbac.Recording(load))
    with pytest.raises(port.Unavailable) as caught:
        cluster.apply_node(node, CORDON)
    assert not caught.value.ambiguous
    assert cluster.get_node(node).name == node


def test_a_forbidden_request_is_refused(simulator):
    spec = port.JobSpec(name="j", namespace="default", node="n", image="i", command=("c",))
    with pytest.raises(port.RefusedByServer):
        simulator.cluster.ensure_job(spec)


def test_many_threads_share_a_client(simulator):
    names = [f"gpu-{number}" for number in range(40)]
    for name in names:
        simulator.node(name)
    done = []

    def cordon(name):
        done.append(simulator.cluster.apply_node(name, CORDON)[1].name)

    threads = [threading.Thread(target=cordon, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(names)
    assert all(item.unschedulable for item in simulator.cluster.list_nodes().items)
