"""Who uses this node's GPUs, as far as the node itself can tell.

Three witnesses, each enough: the driver's list of processes, the kubelet's record of which pods were given GPUs (also
those that have not begun to use them), and open device files, which show what the driver's list hides (another PID
namespace, a process stuck in the kernel).
"""

import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agents import deadline
from agents.probes import nvml
from agents.probes.device import Device

# Resources that device plugins give out by GPU; MIG parts are named nvidia.com/mig-….
RESOURCES = ("nvidia.com/", "metax-tech.com/", "amd.com/")
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
GPU_FILE = re.compile(r"/dev/nvidia[0-9]+")
# The driver's own services hold the devices open; they are no users, and nvidia-smi knows how to deal with them.
SERVICES = frozenset({"nvidia-persiste", "nv-fabricmanage", "nvidia-powerd", "nvidia-imex"})
# Those that only watch: a check may run beside them (DCGM's does its diagnosis through one), a reset may not.
MONITORS = frozenset(
    {"nv-hostengine", "dcgm-exporter", "nvidia-device-p", "gpu-feature-dis", "gpu-kubelet-plu", "nvidia-smi"}
)
PATIENCE = 30.0


def _is_agent(cmdline: bytes) -> bool:
    """Whether this is a node agent, which listens to Xid events; what it measures with has another command line."""
    return any(word.endswith(b"/kcover-agent.pyz") for word in cmdline.split(b"\0")[1:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsers:
    """Asks all witnesses, and gives them ``patience`` seconds. ``kubelet`` and ``proc`` are folders, elsewhere in a
    container that sees the host's. ``beside_monitors``: processes that only watch GPUs are no users of them."""

    kubelet: pathlib.Path = pathlib.Path("/var/lib/kubelet")
    proc: pathlib.Path = pathlib.Path("/proc")
    ask: Callable[[], tuple[Device, ...]] = field(default=nvml.devices)
    beside_monitors: bool = False
    patience: float = PATIENCE

    def __call__(self) -> list[str]:
        """One line for each user; none: nobody does. Raises whatever keeps it from being said, deadline.Late among
        it."""
        return deadline.within(
            self.patience,
            lambda: [*self.computing(), *self.pods(), *self.holders()],
            what="the question who uses the GPUs",
        )

    def computing(self) -> Iterator[str]:
        """Processes by the driver's word. Without a driver there are none. Raises deadline.Late where a GPU hangs."""
        try:
            devices = self.ask()
        except nvml.DriverError as error:
            if not error.absent:
                raise
            return
        for device in devices:
            if device.hangs:
                raise deadline.Late(f"{device.name}: {device.lost}")
            for pid in device.processes or ():
                yield f"process {pid} on {device.name}"

    def pods(self) -> Iterator[str]:
        """Pods that the kubelet gave GPUs to. It forgets a pod late, so one whose folder is gone does not count."""
        try:
            content = json.loads((self.kubelet / CHECKPOINT).read_bytes())
        except FileNotFoundError:
            return
        for entry in (content.get("Data") or {}).get("PodDeviceEntries") or ():
            uid, resource = str(entry.get("PodUID", "")), str(entry.get("ResourceName", ""))
            if resource.startswith(RESOURCES) and (self.kubelet / "pods" / uid).exists():
                yield f"pod {uid} holds {resource}"

    def holders(self) -> Iterator[str]:
        """Processes with a GPU's device file open; this one, the driver's services and perhaps monitors aside."""
        ignored = SERVICES | MONITORS if self.beside_monitors else SERVICES
        for folder in self.proc.iterdir():
            if not folder.name.isdecimal() or folder.name == str(os.getpid()):
                continue
            try:
                name = (folder / "comm").read_text().strip()
                files = {os.readlink(one) for one in (folder / "fd").iterdir()} if name not in ignored else set()
                if self.beside_monitors and _is_agent((folder / "cmdline").read_bytes()):
                    continue
            except OSError:  # it ended meanwhile
                continue
            held = sorted(file for file in files if GPU_FILE.fullmatch(file))
            if held:
                yield f"process {folder.name} ({name}) has {', '.join(held)} open"
