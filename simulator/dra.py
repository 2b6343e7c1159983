"""A DRA driver like NVIDIA's: ``POST /sim/nodes/{n}/devices`` publishes the GPUs of a node as a ResourceSlice.

Attributes and names are those of NVIDIA/k8s-dra-driver-gpu (cmd/gpu-kubelet-plugin/deviceinfo.go). The node owns its
slice, as with NVIDIA's kubelet plugin.
"""

from typing import Any, Final

from aiohttp import web

from simulator import answers
from simulator.kubeapi import errors, resources
from simulator.world.world import World

Object = dict[str, Any]
DRIVER: Final = "gpu.nvidia.com"


def publish(world: World, name: str) -> Object:
    """Creates the slice of a node, unless there is one. The pool has the node's name."""
    made = world.objects.find(resources.RESOURCE_SLICES, "", f"{name}-{DRIVER}")
    if made is not None:
        return made
    node = world.objects.get("Node", "", name)["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["uid"], "controller": True}
    devices = [
        {
            "name": f"gpu-{gpu.index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": gpu.uuid},
                "productName": {"string": gpu.model},
                "pcieBusID": {"string": f"{gpu.pci}.0"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            },
        }
        for gpu in world.machines[name].inventory.gpus
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    metadata = {"name": f"{name}-{DRIVER}", "ownerReferences": [owner]}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
    return world.objects.create(resources.RESOURCE_SLICES, {"metadata": metadata, "spec": spec})


class Driver:
    """The route for one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/sim/nodes/{node}/devices", self._publish)

    async def _publish(self, request: web.Request) -> web.Response:
        name = request.match_info["node"]
        try:
            made = publish(self._world, name)
        except (KeyError, errors.ApiError):
            return answers.document({"error": f"no such node: {name}"}, status=404)
        return answers.document({"node": name, "slice": made["metadata"]["name"]}, status=201)
