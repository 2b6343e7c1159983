"""Executes commands on a real node."""

import contextlib
import functools
import logging
import re
import shlex
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from agents.checks.check_runner import CheckExpired, CheckRunner
from agents.commands.journal import MAX_MESSAGE_LENGTH, Outcome
from agents.host import deadline, programs
from agents.probes.gpu import nvml
from agents.probes.gpu.gpu_users import DRIVER_TIMEOUT_SECONDS, GpuUsers
from kcover.faults.fault import Check

log = logging.getLogger(__name__)

REBOOT_TIMEOUT_SECONDS = 60.0
RESET_TIMEOUT_SECONDS = 180.0
COLLECTING_TIMEOUT_SECONDS = 20.0  # for evidence that is being collected, before a reset
MAX_CHECK_RESULTS = (
    200  # in a command's output: with the longest messages they stay under the 64 KiB of the wire format
)
MAX_CHECK_MESSAGE_LENGTH = 200
_GPU = re.compile(r"GPU-[0-9a-fA-F-]{8,64}|[0-9]{1,3}|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")

Evidence = Callable[[uuid.UUID], Mapping[str, Any]]  # collects the bundle with this name; returns the command's output


class HostExecutor:
    """The ``Executor`` of the node that this process runs on."""

    def __init__(
        self,
        *,
        reboot_command: Sequence[str],
        checks: CheckRunner | None = None,
        gpu_users: Callable[[], Sequence[str]] | None = None,
        release_gpus: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        driver_timeout: float = DRIVER_TIMEOUT_SECONDS,
        evidence: Evidence | None = None,
    ) -> None:
        """``reboot_command``: program and arguments, not read by a shell.

        ``gpu_users`` lists who uses the GPUs while nothing else in this process calls the driver (None: ask driver,
        kubelet and open files). While ``release_gpus`` is entered, the agent listens to no GPU. A driver that does not
        answer within ``driver_timeout`` seconds is not reset. ``evidence`` None: this agent collects none.
        """
        self._reboot_command = tuple(reboot_command)
        self._gpu_users = gpu_users or GpuUsers(query=functools.partial(nvml.devices, within_exclusive=True))
        self._checks = checks or CheckRunner((), gpu_users=self._gpu_users)
        self._hands_off, self._clock, self._driver_timeout = release_gpus, clock, driver_timeout
        self._evidence, self._collecting = evidence, threading.Lock()

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """A command that does not return may well be the reboot in progress."""
        log.warning("reboot: %s", shlex.join(self._reboot_command))
        try:
            result = programs.run(self._reboot_command, timeout=REBOOT_TIMEOUT_SECONDS)
        except programs.ProgramTimeout:
            return None
        except OSError as error:
            return _not_started(self._reboot_command[0], error)
        if result.status < 0:
            return None  # killed by a signal, as every process is while the node goes down
        return _failed(result) if result.status else None

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """Reset a GPU. Refused unless it is proved that nothing uses the node's GPUs."""
        named = [str(args[key]) for key in ("gpu_uuid", "pci", "index") if args.get(key) is not None]
        if not named or not _GPU.fullmatch(named[0]):
            return Outcome(status="refused", message="args must name one GPU: gpu_uuid, pci or index")
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return Outcome(status="refused", message="nvidia-smi is not installed on this node")
        with contextlib.ExitStack() as stack:
            # The tools that collect evidence use the GPUs. They end within their time limit, or the driver hangs.
            if self._collecting.acquire(timeout=COLLECTING_TIMEOUT_SECONDS):
                stack.callback(self._collecting.release)
            try:
                stack.enter_context(self._hands_off())
                stack.enter_context(nvml.exclusive(timeout=self._driver_timeout))
            except (deadline.DeadlineExceeded, nvml.DriverError) as error:
                return Outcome(status="refused", message=f"not reset, because the driver does not answer: {error}")
            return self._reset(tool, named[0])

    def _reset(self, tool: str, gpu: str) -> Outcome:
        try:
            users = self._gpu_users()
        except Exception as error:  # any error: there is no proof that the GPUs are free
            return Outcome(status="refused", message=f"cannot determine who uses the GPUs: {error}")
        if users:
            return Outcome(
                status="refused", message="the GPUs are in use: " + "; ".join(users)[: MAX_MESSAGE_LENGTH // 2]
            )
        try:
            result = programs.run((tool, "--gpu-reset", "-i", gpu), timeout=RESET_TIMEOUT_SECONDS)
        except programs.ProgramTimeout as error:
            return Outcome(status="failed", message=str(error))
        except OSError as error:
            return _not_started(tool, error)
        if result.status:
            return _failed(result)
        return Outcome(status="done", message=result.stdout.strip()[-MAX_MESSAGE_LENGTH // 2 :])

    def collect_evidence(self, args: Mapping[str, Any]) -> Outcome:
        """Collect a bundle. ``done`` once it is on the disk: a reboot does not lose it any more."""
        if self._evidence is None:
            return Outcome(status="refused", message="this agent collects no evidence")
        try:
            name = uuid.UUID(str(args.get("bundle")))
        except ValueError:
            return Outcome(status="refused", message="args.bundle must be a UUID")
        with self._collecting:
            try:
                output = self._evidence(name)
            except OSError as error:
                return Outcome(status="failed", message=f"the evidence cannot be written: {error}")
        return Outcome(status="done", message=f"{output.get('size')} bytes", output=output)

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime | None = None) -> Outcome:
        """``args.check`` (or ``name``) is one name or several separated by commas, ``checks`` a list; all other
        arguments belong to the checks. The results are in ``output.checks`` and in a report."""
        names = _names(args)
        unknown = [name for name in names if name not in self._checks.checks]
        if not names or len(unknown) == len(names):
            return Outcome(
                status="refused", message=f"this agent has no check {args.get('name') or args.get('check')!r}"
            )
        started = time.monotonic()
        try:
            results = self._checks.run(names, args, start_before=expires_at)
        except CheckExpired as error:
            return Outcome(status="expired", message=str(error))
        seconds = round(time.monotonic() - started, 1)
        worst = {result.status for result in results}
        message = "error" if "error" in worst else "fail" if "fail" in worst else "ok"
        return Outcome(
            status="done",
            message=message,
            output={"checks": [_summary(result) for result in _failures_first(results)], "seconds": seconds},
            checks=tuple(results),
            faults=tuple(self._checks.faults(results, now=self._clock())),
        )


def _names(args: Mapping[str, Any]) -> list[str]:
    names = args.get("checks") or args.get("check") or args.get("name") or ()
    listed = names.split(",") if isinstance(names, str) else names if isinstance(names, list) else ()
    return list(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def _failures_first(results: Sequence[Check]) -> list[Check]:
    return sorted(results, key=lambda result: result.status in ("pass", "skipped"))[:MAX_CHECK_RESULTS]


def _summary(result: Check) -> dict[str, Any]:
    return asdict(result) | {"message": result.message[:MAX_CHECK_MESSAGE_LENGTH]}


def _not_started(program: str, error: OSError) -> Outcome:
    return Outcome(status="failed", message=f"{program}: {error.strerror or error}")


def _failed(result: programs.ProgramResult) -> Outcome:
    diagnostics = result.diagnostics[-MAX_MESSAGE_LENGTH // 2 :]
    return Outcome(status="failed", message=f"exit status {result.status}: {diagnostics}", output={"rc": result.status})
