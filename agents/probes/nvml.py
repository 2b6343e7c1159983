"""What the NVIDIA driver says is in this node. The only module that speaks NVML.

The library is opened for each look and closed again: a client that stays keeps ``nvidia-smi --gpu-reset`` from working.
A call may block inside a dying driver for ever, so callers use a thread of their own.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any

from kcover.fault import Gpu, Inventory

try:
    import pynvml
except ImportError:  # a node image without the binding still follows its kernel log
    pynvml = None

log = logging.getLogger(__name__)


def inventory() -> Inventory:
    """Driver, kernel and GPUs of this node; without library or driver only the kernel's version. A GPU that does not
    answer is left out, which shows as a changed inventory."""
    kernel = os.uname().release
    if pynvml is None:
        return Inventory(kernel=kernel)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.debug("nvml: %s", error)
        return Inventory(kernel=kernel)
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_gpu(index))
            except pynvml.NVMLError as error:
                log.warning("nvml: GPU %d: %s", index, error)
        return Inventory(driver=driver, kernel=kernel, gpus=tuple(gpus))
    except pynvml.NVMLError as error:
        log.warning("nvml: %s", error)
        return Inventory(kernel=kernel)
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        pci=_pci(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        model=_text(pynvml.nvmlDeviceGetName(handle)),
        serial=_optional(pynvml.nvmlDeviceGetSerial, handle),
    )


def _pci(bus_id: str) -> str:
    """``00000000:4E:00.0`` as the kernel log prints it: ``0000:4e:00``."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest.removesuffix('.0')}"


def _optional(call: Callable[[Any], Any], handle: Any) -> str:
    try:
        return _text(call(handle))
    except pynvml.NVMLError:  # consumer boards have no serial number
        return ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
