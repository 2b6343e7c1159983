"""What the NVIDIA driver says is in this node, and how it is. The only module that speaks NVML.

The library is opened for each look and closed again: a client that stays keeps ``nvidia-smi --gpu-reset`` from working.
A call may block inside a dying driver for ever, so callers use a thread of their own, and each GPU is asked in another
one with its own deadline. That keeps the others observed where the driver lets calls to them pass; where it stalls all
calls behind the first, each GPU is told to hang, and only the kernel log can say which one began it. While this agent
resets a GPU it asks nothing else: a GPU in mid-reset looks lost. Call numbers: nvidia-ml-py 13 and NVIDIA's NVML API
reference.
"""

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agents.probes import in_turn, questions
from agents.probes.device import Device
from agents.probes.shared_lock import SharedLock
from kcover.fault import Gpu, Inventory

try:
    import pynvml
except ImportError:  # a node image without the binding still follows its kernel log
    pynvml = None

log = logging.getLogger(__name__)
T = TypeVar("T")

NOT_SUPPORTED, DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 3, 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, IN_USE, NOT_READY = 15, 16, 19, 27
# A question that this GPU or driver has no answer to, or not yet: the check is not available.
NO_ANSWER = frozenset({2, NOT_SUPPORTED, 4, 6, FUNCTION_NOT_FOUND, 21, 25, 26, NOT_READY})
XID_EVENT = 0x8

PATIENCE = 20.0  # seconds a question waits for a reset to end: less than the deadlines of those who ask
LONG_PATIENCE = 300.0  # longer than a reset may take
_driver = SharedLock()  # one for the process, as the library is
_states = in_turn.InTurn("NVML's state")
_names = in_turn.InTurn("NVML's name", patience=20.0)  # a driver without persistence wakes a GPU up for some seconds
_known: dict[int, Gpu] = {}  # by number, as they answered last


class DriverError(Exception):
    """The driver as a whole does not answer; ``code`` is NVML's."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def absent(self) -> bool:
        """Whether there is no driver to ask, as on a node without NVIDIA GPUs."""
        return self.code in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)


class ResetUnderWay(DriverError):
    """This agent resets a GPU, and whoever asked now would take it for a lost one."""


@contextlib.contextmanager
def session(*, patience: float = PATIENCE, within_alone: bool = False) -> Iterator[None]:
    """The library, open within. Raises DriverError, ResetUnderWay where a reset lasts longer than ``patience``."""
    if pynvml is None:
        raise DriverError("the nvidia-ml-py package is not installed", code=LIBRARY_NOT_FOUND)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_driver.together(patience=patience, within_alone=within_alone))
        except TimeoutError as error:
            raise ResetUnderWay("a GPU of this node is being reset", code=IN_USE) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise DriverError(str(error), code=getattr(error, "value", 0)) from error
        stack.callback(_quietly, pynvml.nvmlShutdown)
        yield


@contextlib.contextmanager
def alone(*, patience: float) -> Iterator[None]:
    """Within, nothing in this process asks the driver but ``devices(within_alone=True)``. Raises DriverError where a
    question that is under way does not come back within ``patience`` seconds."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_driver.alone(patience=patience))
        except TimeoutError as error:
            raise DriverError(f"a question to the driver did not come back in {patience:g} s", code=TIMEOUT) from error
        yield


def inventory() -> Inventory:
    """Driver, kernel and GPUs of this node; without library or driver only the kernel's version. A GPU that does not
    answer is left out, which shows as a changed inventory; one that hangs is what it was. A reset is waited for."""
    kernel = os.uname().release
    try:
        with session(patience=LONG_PATIENCE):
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
            gpus = []
            for index in range(pynvml.nvmlDeviceGetCount()):
                try:
                    _known[index] = _apart(_names, index, _gpu)
                    gpus.append(_known[index])
                except in_turn.Hangs as error:
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


def devices(*, within_alone: bool = False) -> tuple[Device, ...]:
    """How every GPU is. Raises DriverError where the driver does not answer; a GPU that does not, or that hangs, says
    so itself. ``within_alone``: asked by the one who is ``alone``."""
    with session(within_alone=within_alone):
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise DriverError(str(error), code=getattr(error, "value", 0)) from error
        return tuple(_device(index) for index in range(count))


class XidEvents:
    """The driver's own word about Xids, as a second source: no text, and nothing from before it was opened."""

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
            self._slots[_address(handle)] = _pci(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId))
        except pynvml.NVMLError as error:  # one GPU without events leaves the others theirs
            log.info("nvml: no events from GPU %d: %s", index, error)

    def wait(self, seconds: float) -> tuple[int, str | None] | None:
        """The next Xid and its GPU's slot, or None after ``seconds``. Raises DriverError."""
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
        """Lets go of the driver."""
        self._session.close()


def _address(handle: Any) -> int:
    """A device handle is a pointer; two of them are the same GPU if they point to the same place."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def _quietly(call: Callable[..., Any], *args: Any) -> None:
    with contextlib.suppress(pynvml.NVMLError):
        call(*args)


def _gpu(index: int, question: in_turn.Question) -> Gpu:
    question.call = "nvmlDeviceGetHandleByIndex"
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    question.call = "the question for its name"
    return Gpu(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        pci=_pci(_text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        model=_text(pynvml.nvmlDeviceGetName(handle)),
        serial=_optional(pynvml.nvmlDeviceGetSerial, handle),
    )


class _Asking:
    """``questions.Asking`` of one GPU; what went wrong on the way is in ``troubles``."""

    def __init__(self, handle: Any, question: in_turn.Question) -> None:
        self.handle, self.question = handle, question
        self.troubles: list[str] = []

    def __call__(self, name: str, *args: Any) -> Any:
        self.question.call = name
        try:
            return getattr(pynvml, name)(self.handle, *args)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", 0)
            if code in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            if code not in NO_ANSWER:
                self.troubles.append(f"{name.removeprefix('nvmlDeviceGet')}: {error}")
            return None
        except pynvml.NVMLLibraryMismatchError:  # the binding is newer than the driver: the call is not there
            return None

    def processes(self) -> tuple[int, ...] | None:
        """The ids of the processes with a context here; None where the driver does not list them."""
        found: set[int] = set()
        listed = False
        for kind in ("Compute", "Graphics"):
            for version in ("v3", "v2"):  # drivers before 510 have the older one only
                running = self(f"nvmlDeviceGet{kind}RunningProcesses_{version}")
                if running is not None:
                    listed = True
                    found |= {one.pid for one in running}
                    break
        return tuple(sorted(found)) if listed else None

    def structure(self, name: str, kind: str) -> Any:
        """What the driver fills in, a structure of pynvml's ``kind``; None where either is too old for it."""
        made = getattr(pynvml, kind)() if hasattr(pynvml, kind) else None
        return None if made is None or self(name, ctypes.byref(made)) is None else made

    def fields(self, *wanted: tuple[int, int]) -> dict[tuple[int, int], int]:
        """Field values by (field, scope); those without an answer are absent."""
        answers = self("nvmlDeviceGetFieldValues", list(wanted))
        if answers is None:
            return {}
        return {pair: _number(one) for pair, one in zip(wanted, answers, strict=True) if one.nvmlReturn == 0}


def _apart(kind: in_turn.InTurn, index: int, ask: Callable[[int, in_turn.Question], T]) -> T:
    """Asks one GPU under its own deadline and in a session of its own: whoever asked may have left the question behind,
    and it still keeps the library open and a reset away. Raises in_turn.Hangs."""

    def answer(question: in_turn.Question) -> T:
        with session(within_alone=True):  # who asks is in a session already, so there is nothing to wait for
            return ask(index, question)

    return kind.ask(index, answer)


def _state(index: int, question: in_turn.Question) -> Device:
    try:
        gpu = question.gpu = _gpu(index, question)
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return Device(index=index, lost=str(error), code=getattr(error, "value", 0))
    ask = _Asking(handle, question)
    known: dict[str, Any] = {"index": index, "uuid": gpu.uuid, "pci": gpu.pci, "model": gpu.model}
    try:
        return Device(**known, **questions.state(ask), troubles=tuple(ask.troubles))
    except pynvml.NVMLError as error:
        return Device(**known, lost=str(error), code=getattr(error, "value", 0))


def _device(index: int) -> Device:
    try:
        return _apart(_states, index, _state)
    except in_turn.Hangs as hangs:
        gpu = hangs.gpu or Gpu(index=index, uuid="")
        known: dict[str, Any] = {"uuid": gpu.uuid, "pci": gpu.pci, "model": gpu.model}
        return Device(index=index, **known, lost=str(hangs), code=TIMEOUT, hangs=hangs.seconds)


def _number(field: Any) -> int:
    """A field value by its type (0 double, 1 uint, 2 ulong, 3 ulonglong, 4 longlong, 5 int, 6 ushort)."""
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return int(getattr(field.value, names[field.valueType]))


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
