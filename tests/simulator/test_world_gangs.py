"""JobSets and Volcano Jobs: how their controllers create pods, and how they restart and stop them."""

from simulator.kubeapi import resources
from simulator.world import pods

VOLCANO = "jobs.batch.volcano.sh"
POD = {"spec": {"containers": [{"name": "main", "image": "train"}], "restartPolicy": "OnFailure"}}


def running(cluster, labels):
    cluster.advance(20)
    found = cluster.store.list("Pod", namespace="training", labels=labels)
    return {pod["metadata"]["uid"] for pod in found if pods.ready(pod) and not pods.deleting(pod)}


def test_a_job_set_runs_a_job_for_each_replica(cluster):
    inner = {"template": {"spec": {"parallelism": 2, "completions": 2, "template": POD}}, "replicas": 2, "name": "w"}
    cluster.store.create(
        "JobSet", {"metadata": {"namespace": "training", "name": "llm"}, "spec": {"replicatedJobs": [inner]}}
    )
    labels = "jobset.sigs.k8s.io/jobset-name=llm"
    before = running(cluster, labels)
    assert len(before) == 4
    children = cluster.store.list("Job", namespace="training")
    assert [child["metadata"]["name"] for child in children] == ["llm-w-0", "llm-w-1"]
    for pod in cluster.store.list("Pod", namespace="training", labels=labels):
        cluster.store.delete("Pod", "training", pod["metadata"]["name"])
    after = running(cluster, labels)
    assert len(after) == 4
    assert not after & before
    cluster.store.patch("JobSet", "training", "llm", {"spec": {"suspend": True}})
    assert running(cluster, labels) == set()


def test_volcano_obeys_a_command_once(cluster):
    spec = {"minAvailable": 3, "tasks": [{"name": "worker", "replicas": 3, "template": POD}]}
    job = cluster.store.create(VOLCANO, {"metadata": {"namespace": "training", "name": "gang"}, "spec": spec})
    labels = "volcano.sh/job-name=gang"
    before = running(cluster, labels)
    assert len(before) == 3

    def command(action):
        target = {"kind": "Job", "name": "gang", "uid": job["metadata"]["uid"]}
        metadata = {"namespace": "training", "name": action.lower()}
        cluster.store.create(resources.COMMANDS, {"metadata": metadata, "action": action, "target": target})

    command("RestartJob")
    after = running(cluster, labels)
    assert (len(after), after & before) == (3, set())
    status = cluster.store.get(VOLCANO, "training", "gang")["status"]
    assert (status["state"], status["retryCount"]) == ({"phase": "Running"}, 1)
    assert cluster.store.list(resources.COMMANDS) == []
    command("AbortJob")
    assert running(cluster, labels) == set()
