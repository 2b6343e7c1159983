"""The NVIDIA driver, through NVML. The only module that calls NVML.

The library is opened for each read and closed again, because a client that keeps it open prevents ``nvidia-smi
--gpu-reset``. A call may block in a dying driver for ever. Callers therefore use a thread of their own, and each GPU is
read in another thread with its own deadline. So the other GPUs stay observed if the driver still answers for them. If
the driver stalls all calls behind the first, every GPU is reported as hanging, and only the kernel log can tell which
one caused it.

While this agent resets a GPU it makes no other call, because a GPU in the middle of a reset looks lost.
"""

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agents.host.shared_lock import SharedLock
from agents.probes.gpu import nvml_queries, per_gpu_deadline
from agents.probes.gpu.device import Device
from agents.probes.gpu.nvml_values import number, pci_address, text
from kcover.faults.fault import Gpu, Inventory

log = logging.getLogger(__name__)
T = TypeVar("T")
pynvml: Any = None  # the binding, see _load_binding

NOT_SUPPORTED, DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, IN_USE, NOT_READY = 15, 16, 19, 27
# This GPU or driver has no answer, or none yet: the value is not available.
NOT_AVAILABLE = frozenset({2, NOT_SUPPORTED, 4, 6, FUNCTION_NOT_FOUND, 21, 25, 26, NOT_READY})
XID_EVENT = 0x8

RESET_WAIT_SECONDS = 20.0  # a query waits this long for a reset to end: less than the deadlines of its callers
LONG_RESET_WAIT_SECONDS = 300.0  # longer than any reset takes
driver_lock = SharedLock()  # one for each process, as the library is
state_queries = per_gpu_deadline.PerGpuDeadline("NVML state")
# Without persistence mode, waking a GPU up takes the driver some seconds.
name_queries = per_gpu_deadline.PerGpuDeadline("NVML name", timeout=20.0)
_known: dict[int, Gpu] = {}  # by index, from their last answer


class DriverError(Exception):
    """The driver as a whole does not answer; ``code`` is the NVML error."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def absent(self) -> bool:
        """True if there is no driver, as on a node without NVIDIA GPUs."""
        return self.code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)


class ResetInProgress(DriverError):
    """This agent is resetting a GPU, which would look lost now."""


def _load_binding() -> None:
    """Import pynvml if the driver's library is there; it may be installed while the agent runs. Raises DriverError.

    The binding takes 2 MiB, which a node without NVIDIA GPUs saves.
    """
    global pynvml
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml as binding  # noqa: PLC0415 - see above; several threads may come here at once
    except (OSError, ImportError) as error:  # without either, the agent still follows the kernel log
        message = f"install the NVIDIA driver and the package nvidia-ml-py: {error}"
        raise DriverError(message, code=LIBRARY_NOT_FOUND) from error
    pynvml = binding


@contextlib.contextmanager
def session(*, timeout: float = RESET_WAIT_SECONDS, within_exclusive: bool = False) -> Iterator[None]:
    """Keep the library open. Raises DriverError, and ResetInProgress if a reset takes longer than ``timeout``."""
    if pynvml is None:
        _load_binding()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(driver_lock.shared(timeout=timeout, within_exclusive=within_exclusive))
        except TimeoutError as error:
            raise ResetInProgress("a GPU of this node is being reset", code=IN_USE) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise DriverError(str(error), code=getattr(error, "value", 0)) from error
        stack.callback(_quietly, pynvml.nvmlShutdown)
        yield


@contextlib.contextmanager
def exclusive(*, timeout: float) -> Iterator[None]:
    """Keep everything else in this process from calling the driver, except ``devices(within_exclusive=True)``. Raises
    DriverError if a call in progress does not return within ``timeout`` seconds."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(driver_lock.exclusive(timeout=timeout))
        except TimeoutError as error:
            raise DriverError(f"a call to the driver did not return in {timeout:g} s", code=TIMEOUT) from error
        yield


def inventory() -> Inventory:
    """Driver, kernel and GPUs of this node; without library or driver, only the kernel's version. A GPU that does not
    answer is left out, which shows as a changed inventory; one that hangs keeps its last known entry. Waits for a reset
    to end."""
    kernel = os.uname().release
    try:
        with session(timeout=LONG_RESET_WAIT_SECONDS):
            driver = text(pynvml.nvmlSystemGetDriverVersion())
            gpus = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                try:
                    _known[index] = _query_gpu(name_queries, index, _gpu)
                    gpus.append(_known[index])
                except per_gpu_deadline.GpuHangs as error:
                    log.warning("nvml: GPU %d: %s", index, error)
                    gpus += [_known[index]] if index in _known else []
                except pynvml.NVMLError as error:
                    log.warning("nvml: GPU %d: %s", index, error)
            return Inventory(driver=driver, kernel=kernel, gpus=tuple(gpus))
    except DriverError as error:
        log.debug("nvml: %s", error)
    except pynvml.NVMLError as error:
        log.warning("nvml: %s", error)
    return Inventory(kernel=kernel)


def devices(*, within_exclusive: bool = False) -> tuple[Device, ...]:
    """The state of every GPU.

    Raises DriverError if the driver does not answer. The state of a GPU that is lost or hangs shows this.

    ``within_exclusive``: the caller holds ``exclusive``.
    """
    with session(within_exclusive=within_exclusive):
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DriverError(str(error), code=getattr(error, "value", 0)) from error
        return tuple(_query_state(index) for index in range(count))


class XidEvents:
    """The driver's Xid events, as a second source beside the kernel log. They have no text, and none from before this
    was opened."""

    def __init__(self) -> None:
        self._session = contextlib.ExitStack()
        self._slots: dict[int, str] = {}
        try:
            self._session.enter_context(session())
            self._set = pynvml.nvmlEventSetCreate()
            self._session.callback(_quietly, pynvml.nvmlEventSetFree, self._set)
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._register(index)
        except BaseException as error:
            self._session.close()
            if pynvml is not None and isinstance(error, pynvml.NVMLError):
                raise DriverError(str(error), code=getattr(error, "value", 0)) from error
            raise

    def _register(self, index: int) -> None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._set)
            self._slots[_address(handle)] = pci_address(text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
        except pynvml.NVMLError as error:  # the other GPUs still have events
            log.info("nvml: GPU %d has no Xid events: %s", index, error)

    def wait(self, seconds: float) -> tuple[int, str | None] | None:
        """The next Xid and the slot of its GPU, or None after ``seconds``. Raises DriverError."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if getattr(error, "value", 0) == TIMEOUT:
                return None
            raise DriverError(str(error), code=getattr(error, "value", 0)) from error
        if not event.eventType & XID_EVENT:
            return None
        return int(event.eventData), self._slots.get(_address(event.device))

    def close(self) -> None:
        self._session.close()


def _address(handle: Any) -> int:
    """A device handle is a pointer; two handles with the same address are the same GPU."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _quietly(call: Callable[..., Any], *args: Any) -> None:
    with contextlib.suppress(pynvml.NVMLError):
        call(*args)


def _gpu(index: int, query: per_gpu_deadline.GpuQuery) -> Gpu:
    query.call = "nvmlDeviceGetHandleByIndex"
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    query.call = "reading its name"
    return Gpu(
        index=index,
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        pci=pci_address(text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        model=text(pynvml.nvmlDeviceGetName(handle)),
        serial=_optional(pynvml.nvmlDeviceGetSerial, handle),
    )


class _NvmlQueries:
    """``nvml_queries.Queries`` for one GPU. Unexpected errors are collected in ``errors``."""

    def __init__(self, handle: Any, query: per_gpu_deadline.GpuQuery) -> None:
        self.handle, self.query = handle, query
        self.errors: list[str] = []

    def __call__(self, name: str, *args: Any) -> Any:
        self.query.call = name
        try:
            return getattr(pynvml, name)(self.handle, *args)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", 0)
            if code in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            if code not in NOT_AVAILABLE:
                self.errors.append(f"{name.removeprefix('nvmlDeviceGet')}: {error}")
            return None
        except pynvml.NVMLLibraryMismatchError:  # the binding is newer than the driver, which lacks the call
            return None

    def processes(self) -> tuple[int, ...] | None:
        """The IDs of the processes with a context on this GPU; None if the driver does not list them."""
        found: set[int] = set()
        listed = False
        for kind in ("Compute", "Graphics"):
            for version in ("v3", "v2"):  # drivers before 510 only have v2
                running = self(f"nvmlDeviceGet{kind}RunningProcesses_{version}")
                if running is not None:
                    listed = True
                    found |= {process.pid for process in running}
                    break
        return tuple(sorted(found)) if listed else None

    def structure(self, name: str, kind: str) -> Any:
        """A structure of pynvml's ``kind``, filled in by the driver; None if either is too old for it."""
        filled = getattr(pynvml, kind)() if hasattr(pynvml, kind) else None
        return None if filled is None or self(name, ctypes.byref(filled)) is None else filled

    def fields(self, *wanted: tuple[int, int]) -> dict[tuple[int, int], int]:
        """Field values by (field, scope); those without an answer are absent."""
        answers = self("nvmlDeviceGetFieldValues", list(wanted))
        if answers is None:
            return {}
        return {pair: number(answer) for pair, answer in zip(wanted, answers, strict=True) if answer.nvmlReturn == 0}


def _query_gpu(
    queries: per_gpu_deadline.PerGpuDeadline, index: int, ask: Callable[[int, per_gpu_deadline.GpuQuery], T]
) -> T:
    """Query one GPU under its own deadline and in its own session: the caller may have given up on the query, which
    still keeps the library open and a reset away. Raises per_gpu_deadline.GpuHangs."""

    def answer(query: per_gpu_deadline.GpuQuery) -> T:
        with session(within_exclusive=True):  # the caller is in a session already, so there is nothing to wait for
            return ask(index, query)

    return queries.run(index, answer)


def _state(index: int, query: per_gpu_deadline.GpuQuery) -> Device:
    try:
        gpu = query.gpu = _gpu(index, query)
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return Device(index=index, lost=str(error), code=getattr(error, "value", 0))
    ask = _NvmlQueries(handle, query)
    known: dict[str, Any] = {"index": index, "uuid": gpu.uuid, "pci": gpu.pci, "model": gpu.model}
    try:
        return Device(**known, **nvml_queries.state(ask), errors=tuple(ask.errors))
    except pynvml.NVMLError as error:
        return Device(**known, lost=str(error), code=getattr(error, "value", 0))


def _query_state(index: int) -> Device:
    try:
        return _query_gpu(state_queries, index, _state)
    except per_gpu_deadline.GpuHangs as hangs:
        gpu = hangs.gpu or Gpu(index=index, uuid="")
        known: dict[str, Any] = {"uuid": gpu.uuid, "pci": gpu.pci, "model": gpu.model}
        return Device(index=index, **known, lost=str(hangs), code=TIMEOUT, hung_seconds=hangs.seconds)


def _optional(call: Callable[[Any], Any], handle: Any) -> str:
    try:
        return text(call(handle))
    except pynvml.NVMLError:  # consumer boards have no serial number
        return ""
