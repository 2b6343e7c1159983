"""Objects that stand for simulated machines, and the controllers that act on them."""

from simulator.kubeapi import resources
from simulator.world import machine, replacements

NODE = "gpu-0001"


def test_a_deleted_object_ends_its_machine_and_another_registers_under_the_name(cluster):
    owners, objects = cluster.world.owners, cluster.world.objects
    for kind in replacements.KINDS:
        made = owners.stand_for(NODE, kind)
        before, host = cluster.node(NODE), cluster.world.machines[NODE]
        host.faults.append(
            machine.ActiveFault(kind="xid", code=79, gpu=0, cure="repair", lines=(), since=objects.now())
        )
        namespace, name = made["metadata"].get("namespace", ""), made["metadata"]["name"]
        objects.delete(replacements.KINDS[kind], namespace, name)
        assert objects.get(replacements.KINDS[kind], namespace, name)["metadata"]["deletionTimestamp"]
        cluster.advance(1.5)
        assert objects.find("Node", "", NODE) is None
        assert objects.find(replacements.KINDS[kind], namespace, name) is None
        cluster.advance(500)
        after, info = cluster.node(NODE), cluster.node(NODE)["status"]["nodeInfo"]
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert info["systemUUID"] != before["status"]["nodeInfo"]["systemUUID"]
        assert (info["bootID"], host.faults) == (host.boot_id, [])
        assert replacements.READINESS_TAINT in after["spec"]["taints"]
        (claim,) = (
            one
            for one in objects.list(replacements.KINDS[kind])
            if replacements.FINALIZER in one["metadata"]["finalizers"]
        )
        assert claim["metadata"]["name"] != name


def test_the_janitor_reboots_and_resets(cluster):
    objects, host = cluster.world.objects, cluster.world.machines[NODE]
    old = host.boot_id
    objects.create(resources.REBOOT_NODES, {"metadata": {"name": "one"}, "spec": {"nodeName": NODE, "force": False}})
    cluster.advance(500)
    assert host.boot_id != old
    gpu = host.inventory.gpus[2]
    for name, cure, phase in (("cured", "reset", "Succeeded"), ("kept", "reboot", "Failed")):
        host.faults.append(machine.ActiveFault(kind="xid", code=62, gpu=2, cure=cure, lines=(), since=objects.now()))
        spec = {"nodeName": NODE, "selector": {"uuids": [gpu.uuid]}}
        objects.create(resources.GPU_RESETS, {"metadata": {"name": name}, "spec": spec})
        cluster.advance(5)
        status = objects.get(resources.GPU_RESETS, "", name)["status"]
        assert (status["phase"], bool(status["completionTime"])) == (phase, True)
