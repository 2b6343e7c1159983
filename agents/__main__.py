"""``python -m agents`` runs the node agent, ``scan FILE`` reads a saved kernel log, ``check NAME`` runs a check now."""

import argparse
import contextlib
import ctypes
import dataclasses
import json
import logging
import mmap
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from agents import VERSION, config, local, loop, process, setup
from kcover import xid

log = logging.getLogger("agents")

M_ARENA_MAX = -8  # <malloc.h>
BLOCK = 4 << 20  # bytes of standard input that are scanned at once


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 for what cannot be read, 2 for settings that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m agents", description="kcover's node agent")
    parser.add_argument("--config", type=pathlib.Path, metavar="FILE", help="YAML settings; the environment wins")
    parser.add_argument("--version", action="version", version=VERSION)
    verbs = parser.add_subparsers(dest="verb", title="instead of running the agent")
    scan = verbs.add_parser("scan", help="print the faults in a saved kernel log, one JSON object a line")
    scan.add_argument("file", metavar="FILE", help="the log, - for standard input")
    check = verbs.add_parser(
        "check", help="run health checks now, one JSON object a result (before a job, for example)"
    )
    check.add_argument("names", metavar="NAME[,NAME]", help="remapped, gpupower, pciebw, gpumem, dcgm, ping, iperf")
    check.add_argument("arguments", metavar="KEY=VALUE", nargs="*", help="the checks' arguments: r=2, hosts=a,b")
    given = parser.parse_args(arguments)
    if given.verb == "scan":
        return _scan(given.file)
    try:
        return _check(given.names, given.arguments, given.config) if given.verb == "check" else _run(given.config)
    except config.ConfigError as error:
        print(f"agents: {error}", file=sys.stderr)
        return 2


def _scan(name: str) -> int:
    try:
        if name == "-":
            _print(sighting for block in _blocks(sys.stdin.buffer) for sighting in xid.scan(block))
            return 0
        with open(name, "rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError):  # empty, or a pipe
                _print(sighting for block in _blocks(file) for sighting in xid.scan(block))
            else:
                with mapped:
                    _print(xid.scan(mapped))
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"scan: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _print(sightings: Iterable[xid.Sighting]) -> None:
    for one in sightings:
        shown = {
            "kind": one.kind,
            "code": one.code,
            "pci": one.pci,
            "pid": one.pid,
            "process": one.process,
            "fatal": one.fatal,
            "link": one.link,
            "mig": one.mig,
            "cause": one.cause,
            "line": one.line,
        }
        sys.stdout.write(json.dumps(shown) + "\n")
    sys.stdout.flush()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The stream cut at line ends; a line longer than a block is cut in two."""
    tail = b""
    while data := file.read(BLOCK):
        end = data.rfind(b"\n") + 1
        if end == 0 and len(tail) < BLOCK:
            tail += data
            continue
        yield tail + data[:end]
        tail = data[end:]
    if tail:
        yield tail


def _run(file: pathlib.Path | None) -> int:
    logging.basicConfig(
        level=os.environ.get("KCOVER_AGENT_LOG", "INFO").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    settings = config.load(file, os.environ)
    _be_small()
    agent, eyes = setup.agent(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("agent %s on %s, log %s, portal %s", VERSION, settings.node, settings.kmsg, settings.url)
    with contextlib.ExitStack() as stack:
        if settings.listen is not None:
            server = _serve(agent, settings.listen, eyes)
            if server is not None:
                stack.callback(server.close)
        process.run(agent, stop=stop, eyes=eyes)
    return 0


def _be_small() -> None:
    """One heap for all threads, and what the start has used goes back: an agent is idle nearly all its life."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        libc.mallopt(M_ARENA_MAX, 1)
        libc.malloc_trim(0)


def _serve(agent: loop.Agent, address: tuple[str, int], eyes: process.Eyes) -> local.Server | None:
    """The local addresses; an agent that cannot have them works all the same."""
    try:
        return local.Server(agent, address, late=lambda: eyes.rounds.late if eyes.rounds else ())
    except OSError as error:
        log.warning("no /metrics and /healthz on %s:%d: %s", *address, error)
        return None


def _check(names: str, arguments: Sequence[str], file: pathlib.Path | None) -> int:
    """Runs checks now; 0: nothing failed, 1: something did, 3: a check broke or is not known."""
    settings = config.load(file, os.environ)
    args: dict[str, str] = {}
    for one in arguments:
        key, equals, value = one.partition("=")
        if not equals:
            raise config.ConfigError(f"{one!r}: accepted is KEY=VALUE, r=2 for example")
        args[key] = value
    results = setup.runner(settings).run([name for name in names.split(",") if name], args)
    for result in results:
        print(json.dumps(dataclasses.asdict(result)))
    statuses = {result.status for result in results}
    return 1 if "fail" in statuses else 3 if "error" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
