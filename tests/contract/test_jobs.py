"""One-shot Jobs on a node, and the labels of training jobs."""

import pytest

from kcover_portal.kube import port

PLACE = "kcover-jobs"


@pytest.fixture
def spec(rig):
    return port.JobSpec(
        name=rig.name("reboot"),
        namespace=PLACE,
        node=rig.name("gpu"),
        image="registry/reboot:1",
        command=("/bin/sh", "-c", "reboot"),
        env={"BOOT_ID": "boot-1"},
        host_pid=True,
        privileged=True,
        deadline_seconds=300,
        labels={"kcover.io/rescue": "7"},
    )


def test_a_job_is_made_once(rig, spec):
    assert rig.cluster.job_state(PLACE, spec.name) == port.JobState(exists=False)
    assert rig.cluster.ensure_job(spec).exists
    made = rig.read("Job", spec.name, namespace=PLACE)
    again = rig.cluster.ensure_job(spec)
    assert (again.exists, again.labels["kcover.io/rescue"]) == (True, "7")
    assert (again.node, again.env) == (spec.node, {"BOOT_ID": "boot-1"})
    assert rig.read("Job", spec.name, namespace=PLACE)["metadata"]["uid"] == made["metadata"]["uid"]
    assert (made["spec"]["backoffLimit"], made["spec"]["activeDeadlineSeconds"]) == (0, 300)
    pod = made["spec"]["template"]["spec"]
    assert (pod["nodeName"], pod["restartPolicy"], pod["hostPID"]) == (spec.node, "Never", True)
    assert pod["containers"][0]["env"] == [{"name": "BOOT_ID", "value": "boot-1"}]
    assert pod["containers"][0]["securityContext"]["privileged"] is True


def test_the_job_controllers_verdict_is_read(rig, spec):
    rig.cluster.ensure_job(spec)
    verdict = {"status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": "2026-11-21T08:00:00Z"}
    conditions = [{"type": kind, **verdict} for kind in ("FailureTarget", "Failed")]
    status = {"startTime": "2026-11-21T08:00:00Z", "failed": 1, "conditions": conditions}
    rig.merge("Job", spec.name, {"status": status}, namespace=PLACE, status=True)
    state = rig.cluster.job_state(PLACE, spec.name)
    assert (state.exists, state.failed, state.succeeded, state.reason) == (True, 1, 0, "DeadlineExceeded")


def test_a_job_is_deleted_and_a_second_deletion_is_harmless(rig, spec):
    rig.cluster.ensure_job(spec)
    rig.cluster.delete_job(PLACE, spec.name)
    assert rig.cluster.job_state(PLACE, spec.name) == port.JobState(exists=False)
    rig.cluster.delete_job(PLACE, spec.name)


def test_workloads_are_found_by_label_and_the_label_taken_off(rig):
    marked = {"kcover.io/need-recovery": "true", "kcover.io/cascading-recovery": "true"}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
    for name, labels in (("marked", marked), ("other", {})):
        meta = {"name": name, "namespace": rig.namespace, "labels": labels}
        rig.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}})

    def found():
        listed = rig.cluster.workloads(labels={"kcover.io/need-recovery": "true"})
        return [(w.kind, w.name) for w in listed if w.namespace == rig.namespace]

    assert found() == [("Job", "marked")]
    after = rig.cluster.label_workload(rig.namespace, "Job", "marked", labels={"kcover.io/need-recovery": None})
    assert "kcover.io/need-recovery" not in after.labels
    assert found() == []
    assert rig.cluster.workload(rig.namespace, "Job", "marked").labels["kcover.io/cascading-recovery"] == "true"


def test_no_such_workload(rig):
    with pytest.raises(port.NotFound):
        rig.cluster.workload(rig.namespace, "Job", "nobody")
    with pytest.raises(port.NotFound):
        rig.cluster.workload(rig.namespace, "MPIJob", "nobody")
    with pytest.raises(port.NotFound):
        rig.cluster.workload(rig.namespace, "Deployment", "nobody")
