"""The evidence of a virtual node: a bundle as a real agent makes it, with what the machine knows."""

import hashlib
import io
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kcover.evidence import bundle
from kcover.evidence.bundle import Section
from simulator.world import machine

NO_TOOL = "install ipmitool"  # virtual machines have no management controller


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualBundle:
    """A bundle in memory."""

    name: uuid.UUID
    content: bytes
    sections: tuple[Section, ...]

    def output(self) -> dict[str, Any]:
        return {
            "size": len(self.content),
            "sha256": hashlib.sha256(self.content).hexdigest(),
            "sections": [asdict(section) for section in self.sections],
        }

    def uploads(self) -> Iterator[tuple[bundle.Upload, bytes]]:
        size, sha256 = len(self.content), hashlib.sha256(self.content).hexdigest()
        for offset in range(0, size, bundle.MAX_CHUNK_BYTES):
            upload = bundle.Upload(bundle=self.name, offset=offset, size=size, sha256=sha256)
            yield upload, self.content[offset : offset + bundle.MAX_CHUNK_BYTES]


def collect(host: machine.Machine, *, name: uuid.UUID) -> VirtualBundle:
    """The bundle of a machine."""
    log = [f"[{record.at.isoformat()}] {record.text}" for record in host.log.records()]
    texts = {
        "versions": [f"boot id: {host.boot_id}", f"kernel: {host.inventory.kernel} (simulated)"],
        "kernel log": log,
        "nvidia-smi -q": list(_gpus(host)),
        "lspci -nnvv": [f"{gpu.pci}.0 3D controller [0302]: NVIDIA Corporation" for gpu in host.inventory.gpus],
    }
    sections = [
        Section(name=title, status="ok", bytes=sum(len(line) + 1 for line in lines)) for title, lines in texts.items()
    ]
    missing = Section(name="ipmitool sel elist last 500", status="missing", note=NO_TOOL)
    file = io.BytesIO()
    writer = bundle.Writer(file)
    for section in sections:
        writer.add(section, texts[section.name])
    writer.add(missing)
    writer.close()
    return VirtualBundle(name=name, content=file.getvalue(), sections=(*sections, missing))


def _gpus(host: machine.Machine) -> Iterator[str]:
    """What ``nvidia-smi -q`` prints, in short. A GPU with a fault has lost its memory counters."""
    faulty = {active.gpu for active in host.faults}
    yield f"Driver Version                            : {host.inventory.driver}"
    yield f"Attached GPUs                             : {host.gpus}"
    for gpu in host.inventory.gpus:
        yield f"GPU {gpu.pci}"
        yield f"    Product Name                          : {gpu.model}"
        yield f"    Serial Number                         : {gpu.serial}"
        yield f"    GPU UUID                              : {gpu.uuid}"
        yield f"    Pending Page Blacklist                : {'Unknown Error' if gpu.index in faulty else 'No'}"
