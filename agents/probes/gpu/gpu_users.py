"""Lists the users of this node's GPUs, as far as the node itself can tell.

There are three sources, and each one is sufficient: the driver's list of processes; the kubelet's record of the pods
that were given GPUs, including those that do not use them yet; and open device files, which show what the driver's list
hides (another PID namespace, a process stuck in the kernel).
"""

import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agents.host import deadline
from agents.probes.gpu import nvml
from agents.probes.gpu.device import Device

# Resource names of device plugins; MIG partitions are named nvidia.com/mig-….
GPU_RESOURCES = ("nvidia.com/", "metax-tech.com/", "amd.com/")
KUBELET_CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
GPU_DEVICE_FILE = re.compile(r"/dev/nvidia[0-9]+")
# Services of the driver hold the devices open. They are not users, and nvidia-smi can handle them.
DRIVER_SERVICES = frozenset({"nvidia-persiste", "nv-fabricmanage", "nvidia-powerd", "nvidia-imex"})
# Tools that only watch: a check may run beside them (DCGM's runs through one), a reset may not.
MONITORING_TOOLS = frozenset(
    {"nv-hostengine", "dcgm-exporter", "nvidia-device-p", "gpu-feature-dis", "gpu-kubelet-plu", "nvidia-smi"}
)
DRIVER_TIMEOUT_SECONDS = 30.0


def _is_agent(cmdline: bytes) -> bool:
    """Return whether the process is a node agent, which listens to Xid events.

    Its benchmark has another command line.
    """
    return any(argument.endswith(b"/kcover-agent.pyz") for argument in cmdline.split(b"\0")[1:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsers:
    """Reads all sources, within ``timeout`` seconds. ``kubelet`` and ``proc`` are folders, mounted elsewhere in a
    container. ``ignore_monitoring``: processes that only watch GPUs do not count as users."""

    kubelet: pathlib.Path = pathlib.Path("/var/lib/kubelet")
    proc: pathlib.Path = pathlib.Path("/proc")
    query: Callable[[], tuple[Device, ...]] = field(default=nvml.devices)
    ignore_monitoring: bool = False
    timeout: float = DRIVER_TIMEOUT_SECONDS

    def __call__(self) -> list[str]:
        """One line for each user; empty if there are none.

        Raises any error that leaves the users unknown, such as deadline.DeadlineExceeded.
        """
        return deadline.within(
            self.timeout,
            lambda: [*self.driver_processes(), *self.pods(), *self.open_device_files()],
            what="determining who uses the GPUs",
        )

    def driver_processes(self) -> Iterator[str]:
        """Processes that the driver lists; none without a driver. Raises deadline.DeadlineExceeded if a GPU hangs."""
        try:
            devices = self.query()
        except nvml.DriverError as error:
            if not error.absent:
                raise
            return
        for device in devices:
            if device.hung_seconds:
                raise deadline.DeadlineExceeded(f"{device.name}: {device.lost}")
            for pid in device.processes or ():
                yield f"process {pid} on {device.name}"

    def pods(self) -> Iterator[str]:
        """Pods that the kubelet gave GPUs to. It forgets pods late, so a pod without a folder does not count."""
        try:
            content = json.loads((self.kubelet / KUBELET_CHECKPOINT).read_bytes())
        except FileNotFoundError:
            return
        for entry in (content.get("Data") or {}).get("PodDeviceEntries") or ():
            uid, resource = str(entry.get("PodUID", "")), str(entry.get("ResourceName", ""))
            if resource.startswith(GPU_RESOURCES) and (self.kubelet / "pods" / uid).exists():
                yield f"pod {uid} was given {resource}"

    def open_device_files(self) -> Iterator[str]:
        """Processes that have a GPU's device file open, except this one, the driver's services, and monitoring tools
        where they are ignored."""
        ignored = DRIVER_SERVICES | MONITORING_TOOLS if self.ignore_monitoring else DRIVER_SERVICES
        for folder in self.proc.iterdir():
            if not folder.name.isdecimal() or folder.name == str(os.getpid()):
                continue
            try:
                name = (folder / "comm").read_text().strip()
                files = {os.readlink(handle) for handle in (folder / "fd").iterdir()} if name not in ignored else set()
                if self.ignore_monitoring and _is_agent((folder / "cmdline").read_bytes()):
                    continue
            except OSError:  # the process ended meanwhile
                continue
            held = sorted(file for file in files if GPU_DEVICE_FILE.fullmatch(file))
            if held:
                yield f"process {folder.name} ({name}) has {', '.join(held)} open"
