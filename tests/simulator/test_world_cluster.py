"""Machines, kubelets, controllers, scheduler: what follows from what happens to a node or a pod."""

import secrets

import pytest

from simulator.kubeapi import errors, eviction
from simulator.world import agenda as agendas, injector, machine, nodes, pods, workloads

REBOOT_IMAGE = "registry.example/reboot:1"


def taints(node: dict) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()}


def evict(cluster, pod: dict) -> None:
    eviction.evict(cluster.store, cluster.api.budgets, pod["metadata"]["namespace"], pod["metadata"]["name"])


def reboot_job(cluster, node: str, boot_id: str, *, name: str = "reboot-1") -> dict:
    container = {"name": "reboot", "image": REBOOT_IMAGE, "env": [{"name": "KCOVER_BOOT_ID", "value": boot_id}]}
    spec = {"nodeName": node, "restartPolicy": "Never", "hostPID": True, "containers": [container]}
    template = {"metadata": {"labels": {"kcover.io/reboot": "true"}}, "spec": spec}
    job = {
        "metadata": {"namespace": "kcover-jobs", "name": name},
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": 600, "template": template},
    }
    return cluster.store.create("Job", job)


def job_conditions(cluster, name: str = "reboot-1") -> list[tuple[str, str]]:
    job = cluster.store.get("Job", "kcover-jobs", name)
    return [(entry["type"], entry["reason"]) for entry in (job.get("status") or {}).get("conditions") or ()]


# The beginning


def test_a_new_cluster_is_in_full_swing(cluster):
    everything = cluster.store.list("Pod")
    assert {pods.phase(pod) for pod in everything} == {"Running", "Succeeded"}
    assert all(pods.ready(pod) == (pods.phase(pod) == "Running") for pod in everything)
    kinds = {(pods.controller(pod) or {"kind": "bare"})["kind"] for pod in everything}
    assert kinds == {"DaemonSet", "Node", "PyTorchJob", "ReplicaSet", "bare"}


def test_no_node_has_more_gpus_taken_than_it_has(cluster):
    for name, host in cluster.world.machines.items():
        running = [pod for pod in cluster.pods_on(name) if not pods.finished(pod)]
        assert sum(map(pods.gpus, running)) <= host.gpus


def test_spares_are_cordoned_and_empty(cluster):
    spares = cluster.store.list("Node", labels="kcover.io/standby=true")
    assert [node["metadata"]["labels"]["pool"] for node in spares] == ["h100-a", "h100-b", "a100"]
    for node in spares:
        assert node["spec"]["unschedulable"] is True
        assert taints(node) == {("node.kubernetes.io/unschedulable", "NoSchedule")}
        assert sum(map(pods.gpus, cluster.pods_on(node["metadata"]["name"]))) == 0


def test_pools_racks_and_sizes():
    specs = nodes.plan(nodes=200, gpus=4)
    assert [spec.name for spec in specs[:2]] == ["gpu-0001", "gpu-0002"]
    by_pool = {pool.name: sum(spec.pool == pool.name for spec in specs) for pool in nodes.POOLS}
    assert by_pool == {"h100-a": 80, "h100-b": 50, "a100": 40, "inference": 30}
    assert {spec.labels["topology.kubernetes.io/rack"] for spec in specs[:16]} == {"rack-01"}
    assert sum(spec.gpus for spec in specs) == 800
    for count in (1, 2, 3, 7):
        assert sum(spec.gpus > 0 for spec in nodes.plan(nodes=count, gpus=8)) == count


# Reboots


def test_a_reboot_goes_not_ready_and_comes_back_with_another_boot_id(cluster):
    host = cluster.world.machines["gpu-0001"]
    before = host.boot_id
    seen = []
    cluster.store.subscribe(
        lambda change: (
            seen.append((nodes.ready_status(change.object), change.object["status"]["nodeInfo"]["bootID"]))
            if change.resource.kind == "Node"
            else None
        )
    )
    assert host.reboot("test")
    assert not host.reboot("test"), "a machine that is down cannot be rebooted again"
    cluster.advance(5)
    assert nodes.ready_status(cluster.node("gpu-0001")) == "True", "nobody has noticed yet"
    cluster.advance(10)
    node = cluster.node("gpu-0001")
    assert nodes.ready_status(node) == "Unknown"
    assert ("node.kubernetes.io/unreachable", "NoExecute") in taints(node)
    assert not any(map(pods.ready, cluster.pods_on("gpu-0001")))
    cluster.advance(150)
    node = cluster.node("gpu-0001")
    assert nodes.ready_status(node) == "True"
    assert node["status"]["nodeInfo"]["bootID"] == host.boot_id != before
    assert taints(node) == set()
    assert all(map(pods.ready, cluster.pods_on("gpu-0001"))), "the kubelet has started its pods again"
    order = list(dict.fromkeys(seen))
    assert (
        order == [("True", before), ("Unknown", before), ("False", host.boot_id), ("True", host.boot_id)][-len(order) :]
    )
    reasons = {event["reason"] for event in cluster.store.list("Event", fields="involvedObject.name=gpu-0001")}
    assert reasons == {"NodeNotReady", "Rebooted", "NodeReady"}


def test_a_reboot_quicker_than_anybody_notices_still_goes_through_not_ready(cluster):
    host = cluster.world.machines["gpu-0001"]
    host.boot_seconds = 0.0
    statuses = []
    cluster.store.subscribe(
        lambda change: statuses.append(nodes.ready_status(change.object)) if change.resource.kind == "Node" else None
    )
    host.reboot("test")
    cluster.advance(5)
    assert statuses[0] == "False"
    assert statuses[-1] == "True"


def test_a_foreign_cordon_and_foreign_taints_survive_a_reboot(cluster):
    foreign = {"key": "example.com/maintenance", "value": "yes", "effect": "NoSchedule"}
    cluster.store.patch("Node", "", "gpu-0001", {"spec": {"unschedulable": True, "taints": [foreign]}})
    cluster.world.machines["gpu-0001"].reboot("test")
    cluster.advance(200)
    node = cluster.node("gpu-0001")
    assert node["spec"]["unschedulable"] is True
    assert taints(node) == {
        ("example.com/maintenance", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    }
    cluster.store.patch("Node", "", "gpu-0001", {"spec": {"unschedulable": None}})
    cluster.advance(1)
    assert taints(cluster.node("gpu-0001")) == {("example.com/maintenance", "NoSchedule")}


def test_a_reboot_job_takes_its_node_down_once(cluster):
    host = cluster.world.machines["gpu-0002"]
    reboot_job(cluster, "gpu-0002", host.boot_id)
    cluster.advance(20)
    assert host.power == machine.BOOTING
    cluster.advance(300)
    assert [boot.cause.split()[0] for boot in host.boots] == ["power", "job"]
    assert nodes.ready_status(cluster.node("gpu-0002")) == "True"
    assert job_conditions(cluster) == [("Failed", "BackoffLimitExceeded")], "its pod died with the boot"
    cluster.advance(3600)
    assert len(host.boots) == 2


def test_a_reboot_job_for_another_boot_does_nothing(cluster):
    host = cluster.world.machines["gpu-0002"]
    reboot_job(cluster, "gpu-0002", "11111111-2222-3333-4444-555555555555")
    cluster.advance(30)
    assert job_conditions(cluster) == [("Complete", "CompletionsReached")]
    assert len(host.boots) == 1


def test_a_reboot_job_on_a_dead_node_ends_at_its_deadline(cluster):
    host = cluster.world.machines["gpu-0002"]
    host.hang()
    reboot_job(cluster, "gpu-0002", host.boot_id)
    cluster.advance(601)
    assert job_conditions(cluster) == [("Failed", "DeadlineExceeded")]


# Machines that are broken


def order(**more) -> injector.Order:
    return injector.parse({"node": "gpu-0003", "kind": "xid", "code": 79, **more})


def log_of(host: machine.Machine) -> list[str]:
    chunk = host.log.read(boot_id=host.boot_id, now=host.agenda.now())
    return [record.text for record in chunk.records if "Xid" in record.text]


def test_a_reboot_cures_by_default(cluster):
    host = cluster.world.machines["gpu-0003"]
    injector.inject(cluster.world, order())
    assert [(fault.code, fault.gpu) for fault in host.faults] == [(79, 0)]
    host.reboot("test")
    cluster.advance(200)
    assert host.faults == []
    assert log_of(host) == []


def test_a_fault_that_no_reboot_cures_is_printed_again_until_a_repair(cluster):
    host = cluster.world.machines["gpu-0003"]
    injector.inject(cluster.world, order(cure="repair", gpu=2))
    assert len(log_of(host)) == 1
    host.reboot("test")
    cluster.advance(200)
    assert log_of(host) == [
        f"NVRM: Xid (PCI:{machine.pci(2)}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    ]
    cluster.advance(900)
    assert host.faults == []


def test_a_machine_that_never_returns_waits_for_a_repair(cluster):
    host = cluster.world.machines["gpu-0003"]
    injector.inject(cluster.world, order(returns=False))
    host.reboot("test")
    cluster.advance(800)
    assert host.power == machine.DEAD
    assert nodes.ready_status(cluster.node("gpu-0003")) == "Unknown"
    host.repair()
    cluster.advance(200)
    assert host.power == machine.UP
    assert nodes.ready_status(cluster.node("gpu-0003")) == "True"


def test_a_gpu_reset_cures_what_it_can(cluster):
    host = cluster.world.machines["gpu-0003"]
    injector.inject(cluster.world, order(code=48, gpu=1, cure="reset"))
    injector.inject(cluster.world, order(code=79, gpu=2))
    assert host.reset_gpu(1) is True
    assert host.reset_gpu(2) is False
    assert [fault.gpu for fault in host.faults] == [2]


def test_a_programs_own_fault_leaves_nothing_behind(cluster):
    injector.inject(cluster.world, order(code=31))
    assert cluster.world.machines["gpu-0003"].faults == []


def test_a_hung_machine_is_unreachable_and_loses_its_pods_after_a_while(cluster):
    name = next(pods.node_of(pod) for pod in cluster.store.list("Pod", namespace="serving"))
    injector.inject(cluster.world, order(node=name, kind="hang"))
    cluster.advance(15)
    assert nodes.ready_status(cluster.node(name)) == "Unknown"
    cluster.advance(310)
    left = cluster.pods_on(name)
    assert any(pods.deleting(pod) for pod in left), "Terminating until the kubelet is back"
    assert not any(pods.deleting(pod) for pod in left if pods.is_daemon(pod) or pods.is_mirror(pod))


def test_a_machine_that_crashes_may_come_back_without_its_kubelet(cluster):
    name = "gpu-0003"
    host = cluster.world.machines[name]
    old = host.boot_id
    injector.inject(cluster.world, order(node=name, crash=True))
    cluster.advance(150)
    node = cluster.node(name)
    assert host.power == "up"
    assert host.boot_id != old == node["status"]["nodeInfo"]["bootID"]
    assert nodes.ready_status(node) == "Unknown"
    assert host.faults
    assert host.reboot("by hand")
    cluster.advance(150)
    node = cluster.node(name)
    assert (nodes.ready_status(node), node["status"]["nodeInfo"]["bootID"]) == ("True", host.boot_id)
    assert host.faults == []


def test_a_suspended_pytorch_job_has_no_pods_until_it_is_resumed(cluster):
    job = cluster.store.list("PyTorchJob")[0]
    place = job["metadata"]["namespace"], job["metadata"]["name"]

    def running():
        mine = f"training.kubeflow.org/job-name={place[1]}"
        return [pod for pod in cluster.store.list("Pod", namespace=place[0], labels=mine) if pods.ready(pod)]

    wanted = len(running())
    assert wanted
    cluster.store.patch("PyTorchJob", *place, {"spec": {"runPolicy": {"suspend": True}}})
    cluster.advance(60)
    assert running() == []
    cluster.store.patch("PyTorchJob", *place, {"spec": {"runPolicy": {"suspend": False}}})
    cluster.advance(60)
    assert len(running()) == wanted


def test_pods_of_a_node_out_of_service_are_deleted_only_while_it_is_not_ready(cluster):
    taint = [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]
    well, lost = "gpu-0001", "gpu-0002"
    before = {pod["metadata"]["uid"] for pod in cluster.pods_on(well)}
    injector.inject(cluster.world, order(node=lost, kind="hang"))
    cluster.advance(15)
    was = {pod["metadata"]["uid"] for pod in cluster.pods_on(lost)}
    assert was
    for name in (well, lost):
        cluster.store.patch("Node", "", name, {"spec": {"taints": taint}})
    cluster.advance(10)
    assert was.isdisjoint(pod["metadata"]["uid"] for pod in cluster.pods_on(lost))
    assert before <= {pod["metadata"]["uid"] for pod in cluster.pods_on(well)}


# Pods


def test_an_evicted_replica_comes_back_on_another_node(cluster):
    pod = cluster.serving_pod()
    name = pods.node_of(pod)
    cluster.store.patch("Node", "", name, {"spec": {"unschedulable": True}})
    evict(cluster, pod)
    cluster.advance(1)
    assert pods.deleting(cluster.store.get("Pod", "serving", pod["metadata"]["name"])), "it has its grace"
    cluster.advance(10)
    assert cluster.store.find("Pod", "serving", pod["metadata"]["name"]) is None
    replicas = cluster.store.list("Pod", namespace="serving", labels="app=embeddings")
    wanted = cluster.store.get("Deployment", "serving", "embeddings")["spec"]["replicas"]
    ready = [replica for replica in replicas if pods.ready(replica)]
    assert len(ready) == wanted
    assert name not in {
        pods.node_of(replica)
        for replica in ready
        if replica["metadata"]["creationTimestamp"] > pod["metadata"]["creationTimestamp"]
    }


def test_a_training_pod_comes_back_under_its_own_name(cluster):
    pod = cluster.store.list("Pod", namespace="training")[0]
    node = pods.node_of(pod)
    cluster.store.patch("Node", "", node, {"spec": {"unschedulable": True}})
    cluster.store.delete("Pod", "training", pod["metadata"]["name"])
    cluster.advance(20)
    again = cluster.store.get("Pod", "training", pod["metadata"]["name"])
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    assert pods.ready(again)
    assert pods.node_of(again) != node
    assert again["metadata"]["labels"][workloads.JOB_NAME]


def test_a_pod_without_a_place_waits_for_one(cluster):
    pod = next(pod for pod in cluster.store.list("Pod", namespace="training") if "h100-b" in pod["metadata"]["name"])
    pool = [node["metadata"]["name"] for node in cluster.store.list("Node", labels="pool=h100-b")]
    for name in pool:
        cluster.store.patch("Node", "", name, {"spec": {"unschedulable": True}})
    cluster.store.delete("Pod", "training", pod["metadata"]["name"])
    cluster.advance(20)
    waiting = cluster.store.get("Pod", "training", pod["metadata"]["name"])
    assert (pods.phase(waiting), pods.node_of(waiting)) == ("Pending", "")
    reasons = [entry.get("reason") for entry in waiting["status"]["conditions"]]
    assert reasons == ["Unschedulable"]
    cluster.store.patch("Node", "", pool[-1], {"spec": {"unschedulable": None}})
    cluster.advance(5)
    assert pods.node_of(cluster.store.get("Pod", "training", pod["metadata"]["name"])) == pool[-1]


def test_daemon_and_mirror_pods_come_back_where_they_were(cluster):
    gone = [pod for pod in cluster.pods_on("gpu-0001") if pods.is_daemon(pod) or pods.is_mirror(pod)]
    assert len(gone) == 3
    for pod in gone:
        cluster.store.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)
    cluster.advance(5)
    back = [pod for pod in cluster.pods_on("gpu-0001") if pods.is_daemon(pod) or pods.is_mirror(pod)]
    assert len(back) == 3
    assert {pod["metadata"]["uid"] for pod in back}.isdisjoint(pod["metadata"]["uid"] for pod in gone)


def test_a_bare_pod_is_gone_for_good(cluster):
    cluster.store.delete("Pod", "research", "notebook-alice")
    cluster.advance(60)
    assert cluster.store.find("Pod", "research", "notebook-alice") is None


def test_pods_of_a_machine_that_is_down_stay_terminating_until_it_is_back(cluster):
    pod = cluster.serving_pod()
    name = pods.node_of(pod)
    cluster.world.machines[name].reboot("test")
    evict(cluster, pod)
    cluster.advance(60)
    assert pods.deleting(cluster.store.get("Pod", "serving", pod["metadata"]["name"]))
    cluster.advance(120)
    assert cluster.store.find("Pod", "serving", pod["metadata"]["name"]) is None


def test_a_killed_program_is_restarted_at_growing_intervals(cluster):
    pod = cluster.store.list("Pod", namespace="training")[0]
    node, name = pods.node_of(pod), pod["metadata"]["name"]
    injector.inject(cluster.world, order(node=node, code=31, gpu=3, kill=True))
    crashed = cluster.store.get("Pod", "training", name)
    state = crashed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("Error", 1)
    assert not pods.ready(crashed)
    cluster.advance(11)
    again = cluster.store.get("Pod", "training", name)
    assert pods.ready(again)
    assert again["status"]["containerStatuses"][0]["restartCount"] == 1
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "Error"
    injector.inject(cluster.world, order(node=node, code=31, kill=True))
    cluster.advance(11)
    assert not pods.ready(cluster.store.get("Pod", "training", name))
    cluster.advance(10)
    assert pods.ready(cluster.store.get("Pod", "training", name))


def test_a_scaled_deployment_gets_and_loses_pods(cluster):
    for replicas in (7, 2):
        cluster.store.patch("Deployment", "serving", "reranker", {"spec": {"replicas": replicas}})
        cluster.advance(20)
        assert len(cluster.store.list("Pod", namespace="serving", labels="app=reranker")) == replicas
    assert cluster.store.get("Deployment", "serving", "reranker")["status"]["readyReplicas"] == 2


def test_a_jobs_ttl_removes_it_and_its_pods(cluster):
    job = {
        "metadata": {"namespace": "kcover-jobs", "name": "short"},
        "spec": {
            "ttlSecondsAfterFinished": 30,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    cluster.store.create("Job", job)
    cluster.advance(10)
    assert job_conditions(cluster, "short") == [("Complete", "CompletionsReached")]
    cluster.advance(31)
    assert cluster.store.find("Job", "kcover-jobs", "short") is None
    assert cluster.store.list("Pod", namespace="kcover-jobs") == []


def test_a_name_that_is_taken_only_delays_a_pod(cluster, monkeypatch):
    taken = cluster.store.list("Pod", namespace="serving", labels="app=reranker")[0]["metadata"]["name"]
    letters = list(taken.rpartition("-")[2])
    original = secrets.choice
    monkeypatch.setattr(secrets, "choice", lambda among: letters.pop(0) if letters else original(among))
    cluster.store.patch("Deployment", "serving", "reranker", {"spec": {"replicas": 3}})
    cluster.advance(10)
    assert letters == []
    assert len(cluster.store.list("Pod", namespace="serving", labels="app=reranker")) == 3


# The agenda


def test_the_agenda_plays_in_order_and_survives_an_action_that_fails(cluster, caplog):
    plans = agendas.Agenda(now=cluster.clock)
    done = []
    plans.after(2, lambda: done.append("late"))
    plans.after(1, lambda: done.remove("nothing"))
    plans.after(1, lambda: plans.after(0, lambda: done.append("then")))
    plans.after(1, lambda: done.append("never")).cancel()
    cluster.clock.advance(3, plans)
    assert done == ["then", "late"]
    assert "an action failed" in caplog.text
    assert plans.next_due is None


def test_a_crash_is_the_last_line_of_the_log_and_a_restart_begins_another(cluster):
    pod = cluster.serving_pod()
    cluster.api.logs.write(pod, "epoch 3")
    cluster.world.kubelets[pods.node_of(pod)].crash(pod, message="CUDA error")
    assert cluster.api.logs.read(pod, {}) == b"epoch 3\nCUDA error\n"
    with pytest.raises(errors.ApiError, match="previous terminated container"):
        cluster.api.logs.read(pod, {"previous": "true"})
    cluster.advance(20)
    assert cluster.api.logs.read(pod, {"previous": "true", "tailLines": "1"}) == b"CUDA error\n"
    assert cluster.api.logs.read(pod, {}) == b""
    for wrong in ({"container": "none"}, {"sinceTime": "yesterday"}, {"limitBytes": "-1"}):
        with pytest.raises(errors.ApiError):
            cluster.api.logs.read(pod, wrong)
