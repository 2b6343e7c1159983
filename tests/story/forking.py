"""A process that has imported the portal, and forks what a test asks for: management commands, or one of its processes.

To import the portal takes a second of CPU, and a run of the tests starts hundreds of processes. This one connects to
nothing and starts no thread, so that a fork is as good as a process that has just imported the same.

Each line of standard input is a request in JSON, and each line of standard output its answer:

- ``{"commands": [[...], ...]}``: what each printed, or null if one failed.
- ``{"start": [...], "log": PATH, "keep": [...]}``: the id of a process of its own session that runs these arguments of
  Python, with these file descriptors open.
- ``{"status": PID}``: the exit status of such a process, or the negative number of a signal, when it has ended.
"""

import contextlib
import functools
import importlib
import io
import json
import os
import runpy
import sys
import traceback
from typing import Any

import django
from django.core.management import call_command

# What the processes import after Django, all of it free of effects.
MODULES = (
    *("kcover_portal.celery", "kcover_portal.asgi.web", "kcover_portal.urls", "uvicorn.main", "uvicorn.supervisors"),
    *("celery.bin.celery", "celery.bin.worker", "celery.apps.worker", "celery.bin.beat", "simulator.__main__"),
)


def main() -> list[str]:
    """Answers requests until there are no more. In a fork, returns the arguments of Python to run."""
    django.setup()
    for line in sys.stdin:
        request = json.loads(line)
        if "commands" in request:
            answer: Any = _printed(request["commands"])
        elif "status" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["status"], 0)[1])
        else:
            _import_all()
            answer = os.fork()
            if not answer:
                _become(request["log"], keep=request["keep"])
                return list(request["start"])
        print(json.dumps(answer), flush=True)
    return []


@functools.cache
def _import_all() -> None:
    """Imports what processes need and commands do not, before the first process."""
    for name in MODULES:
        importlib.import_module(name)
    sys.modules["kcover_portal.celery"].app.loader.import_default_modules()


def _printed(commands: list[list[str]]) -> list[str] | None:
    """Runs the commands in a fork, because they connect to databases."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reads)
        try:
            with open(writes, "w", encoding="utf-8") as pipe:
                json.dump([_run(command) for command in commands], pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    os.close(writes)
    with open(reads, encoding="utf-8") as pipe:
        text = pipe.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if ended else list(json.loads(text))


def _run(command: list[str]) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def _become(log: str, *, keep: list[int]) -> None:
    """Lets go of what the process that forks has: its session, its pipes and its files."""
    os.setsid()
    nothing, printed = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for fd, own in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(fd, own)
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - the old one has read requests ahead
    kept = {0, 1, 2, sys.stdin.fileno(), *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(int(name))


def run(arguments: list[str]) -> None:
    """Does what Python does with these arguments: ``-m MODULE ...`` or ``FILE ...``."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__" and (given := main()):
    run(given)
