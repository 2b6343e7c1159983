"""The simulator's DRA driver, and the portal's view of what it publishes."""

import json

import pytest

from kcover_portal.kube import port, resource_slices
from kcover_portal.kube.resource_slices import Device
from simulator import dra
from simulator.kubeapi import errors, resources, validation

NODE = "gpu-0001"


def test_a_node_has_one_slice_that_goes_with_it(cluster):
    made = dra.publish(cluster.world, NODE)
    assert dra.publish(cluster.world, NODE) == made
    objects, host = cluster.world.objects, cluster.world.machines[NODE]
    assert objects.list(resources.RESOURCE_SLICES, fields=f"spec.nodeName={NODE}") == [made]
    found = resource_slices.devices([slice_of(made["spec"]["devices"])])
    assert [(one.name, one.uuid, one.pci) for one in found] == [
        (f"gpu-{gpu.index}", gpu.uuid, f"{gpu.pci}.0") for gpu in host.inventory.gpus
    ]
    rule = {"metadata": {"name": "r", "ownerReferences": made["metadata"]["ownerReferences"]}}
    taint = {"key": "a/b", "effect": "NoSchedule"}
    wrong = {**rule, "spec": {"taint": {**taint, "effect": "PreferNoSchedule"}}}
    with pytest.raises(errors.ApiError):
        validation.check(resources.DEVICE_TAINT_RULES, wrong, group="resource.k8s.io")
    objects.create(resources.DEVICE_TAINT_RULES, {**rule, "spec": {"taint": taint}})
    objects.delete("Node", "", NODE)
    assert objects.list(resources.RESOURCE_SLICES) == objects.list(resources.DEVICE_TAINT_RULES) == []


def slice_of(devices, *, generation=1):
    spec = {"driver": "d", "pool": {"name": "p", "generation": generation}, "devices": devices}
    return port.CustomObject(kind=port.RESOURCE_SLICES[0], name="s", uid="u", raw_spec=json.dumps(spec).encode())


def test_devices_are_read_from_every_version_and_from_the_newest_generation_only():
    old = slice_of([{"name": "gone"}], generation=0)
    basic = {"name": "a", "basic": {"attributes": {"x.y/uuid": {"string": "U"}, "index": {"int": 3}}}}
    root = {"name": "b", "attributes": {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"}}}
    found = resource_slices.devices([old, slice_of([basic, root]), slice_of("wrong", generation=2)])
    assert found == [Device(driver="d", pool="p", name="a", uuid="U"), Device(driver="d", pool="p", name="b")]
