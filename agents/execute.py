"""Carrying commands out on a real node."""

import contextlib
import functools
import logging
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from agents import deadline, programs
from agents.checks.runner import Runner, TooLate
from agents.commands import MAX_OUTPUT, Outcome
from agents.gpu_users import PATIENCE, GpuUsers
from agents.probes import nvml
from kcover.fault import Check

log = logging.getLogger(__name__)

REBOOT_TIMEOUT = 60.0
RESET_TIMEOUT = 180.0
MAX_CHECKS = 200  # results in a command's output; with the longest words they stay under the wire's 64 KiB
MAX_WORDS = 200
_GPU = re.compile(r"GPU-[0-9a-fA-F-]{8,64}|[0-9]{1,3}|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")


class Host:
    """The node this process runs on."""

    def __init__(
        self,
        *,
        reboot_command: Sequence[str],
        checks: Runner | None = None,
        in_use: Callable[[], Sequence[str]] | None = None,
        hands_off: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: float = PATIENCE,
    ) -> None:
        """``reboot_command``: program and arguments; no shell reads it. ``in_use`` says who uses the GPUs while this
        process asks the driver nothing else (None: ask every witness); ``hands_off``: within, the agent listens to no
        GPU. A driver that does not answer within ``patience`` seconds is not reset."""
        self._reboot_command = tuple(reboot_command)
        self._in_use = in_use or GpuUsers(ask=functools.partial(nvml.devices, within_alone=True))
        self._checks = checks or Runner((), in_use=self._in_use)
        self._hands_off, self._clock, self._patience = hands_off, clock, patience

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """See ``Executor.reboot``. A command that does not come back may well be the reboot at work."""
        log.warning("reboot: %s", shlex.join(self._reboot_command))
        try:
            ended = programs.run(self._reboot_command, timeout=REBOOT_TIMEOUT)
        except programs.TookTooLong:
            return None
        except OSError as error:
            return _not_started(self._reboot_command[0], error)
        if ended.status < 0:
            return None  # ended by a signal, as everything is while a node goes down
        return _failed(ended) if ended.status else None

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """See ``Executor.reset_gpu``. Refused unless it is proved that nothing uses the node's GPUs."""
        named = [str(args[key]) for key in ("gpu_uuid", "pci", "index") if args.get(key) is not None]
        if not named or not _GPU.fullmatch(named[0]):
            return Outcome(status="refused", message="args must name one GPU: gpu_uuid, pci or index")
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return Outcome(status="refused", message="nvidia-smi is not on this node")
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._hands_off())
                stack.enter_context(nvml.alone(patience=self._patience))
            except (deadline.Late, nvml.DriverError) as error:
                return Outcome(status="refused", message=f"the driver does not answer, and is not reset: {error}")
            return self._reset(tool, named[0])

    def _reset(self, tool: str, gpu: str) -> Outcome:
        try:
            users = self._in_use()
        except Exception as error:  # whatever broke, it is no proof
            return Outcome(status="refused", message=f"nobody can say who uses the GPUs: {error}")
        if users:
            return Outcome(status="refused", message="the GPUs are in use: " + "; ".join(users)[: MAX_OUTPUT // 2])
        try:
            ended = programs.run((tool, "--gpu-reset", "-i", gpu), timeout=RESET_TIMEOUT)
        except programs.TookTooLong as error:
            return Outcome(status="failed", message=str(error))
        except OSError as error:
            return _not_started(tool, error)
        if ended.status:
            return _failed(ended)
        return Outcome(status="done", message=ended.out.strip()[-MAX_OUTPUT // 2 :])

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime | None = None) -> Outcome:
        """See ``Executor.run_check``: ``args.check`` (or ``name``) is one name or several with commas, ``checks`` a
        list; everything else is the checks' own. The results are in ``output.checks``, and in a report."""
        names = _names(args)
        unknown = [name for name in names if name not in self._checks.checks]
        if not names or len(unknown) == len(names):
            return Outcome(
                status="refused", message=f"this agent has no check {args.get('name') or args.get('check')!r}"
            )
        started = time.monotonic()
        try:
            results = self._checks.run(names, args, before=expires_at)
        except TooLate as error:
            return Outcome(status="expired", message=str(error))
        seconds = round(time.monotonic() - started, 1)
        worst = {result.status for result in results}
        message = "error" if "error" in worst else "fail" if "fail" in worst else "ok"
        return Outcome(
            status="done",
            message=message,
            output={"checks": [_shown(result) for result in _bad_first(results)], "seconds": seconds},
            checks=tuple(results),
            faults=tuple(self._checks.faults(results, now=self._clock())),
        )


def _names(args: Mapping[str, Any]) -> list[str]:
    asked = args.get("checks") or args.get("check") or args.get("name") or ()
    listed = asked.split(",") if isinstance(asked, str) else asked if isinstance(asked, list) else ()
    return list(dict.fromkeys(str(name).strip() for name in listed if str(name).strip()))


def _bad_first(results: Sequence[Check]) -> list[Check]:
    return sorted(results, key=lambda result: result.status in ("pass", "skipped"))[:MAX_CHECKS]


def _shown(result: Check) -> dict[str, Any]:
    return asdict(result) | {"message": result.message[:MAX_WORDS]}


def _not_started(program: str, error: OSError) -> Outcome:
    return Outcome(status="failed", message=f"{program}: {error.strerror or error}")


def _failed(ended: programs.Ended) -> Outcome:
    said = ended.said[-MAX_OUTPUT // 2 :]
    return Outcome(status="failed", message=f"exit status {ended.status}: {said}", output={"rc": ended.status})
