"""Carrying commands out on a real node."""

import logging
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from agents.commands import MAX_OUTPUT, Outcome

log = logging.getLogger(__name__)

REBOOT_TIMEOUT = 60.0
RESET_TIMEOUT = 180.0
_GPU = re.compile(r"GPU-[0-9a-fA-F-]{8,64}|[0-9]{1,3}|(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")


class Host:
    """The node this process runs on."""

    def __init__(self, *, reboot_command: Sequence[str]) -> None:
        """``reboot_command``: program and arguments; no shell reads it."""
        self._reboot_command = tuple(reboot_command)

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """See ``Executor.reboot``. A command that does not come back may well be the reboot at work."""
        log.warning("reboot: %s", shlex.join(self._reboot_command))
        outcome = _run(self._reboot_command, timeout=REBOOT_TIMEOUT)
        if isinstance(outcome, subprocess.TimeoutExpired):
            return None
        if isinstance(outcome, Outcome):
            return outcome
        if outcome.returncode < 0:
            return None  # ended by a signal, as everything is while a node goes down
        return _failed(outcome) if outcome.returncode else None

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """See ``Executor.reset_gpu``."""
        named = [str(args[key]) for key in ("gpu_uuid", "pci", "index") if args.get(key) is not None]
        if not named or not _GPU.fullmatch(named[0]):
            return Outcome(status="refused", message="args must name one GPU: gpu_uuid, pci or index")
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return Outcome(status="refused", message="nvidia-smi is not on this node")
        outcome = _run((tool, "--gpu-reset", "-i", named[0]), timeout=RESET_TIMEOUT)
        if isinstance(outcome, subprocess.TimeoutExpired):
            return Outcome(status="failed", message=f"nvidia-smi did not end within {RESET_TIMEOUT:.0f} s")
        if isinstance(outcome, Outcome):
            return outcome
        if outcome.returncode:
            return _failed(outcome)
        return Outcome(status="done", message=_tail(outcome.stdout))

    def run_check(self, args: Mapping[str, Any]) -> Outcome:
        """See ``Executor.run_check``."""
        return Outcome(status="refused", message=f"this agent has no check {args.get('name') or args.get('check')!r}")


def _run(
    command: Sequence[str], *, timeout: float
) -> "subprocess.CompletedProcess[bytes] | subprocess.TimeoutExpired | Outcome":
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired as error:
        return error
    except OSError as error:
        return Outcome(status="failed", message=f"{command[0]}: {error.strerror or error}")


def _failed(ended: "subprocess.CompletedProcess[bytes]") -> Outcome:
    said = _tail(ended.stderr) or _tail(ended.stdout)
    return Outcome(status="failed", message=f"exit status {ended.returncode}: {said}", output={"rc": ended.returncode})


def _tail(data: bytes) -> str:
    return data[-MAX_OUTPUT // 2 :].decode(errors="replace").strip()
