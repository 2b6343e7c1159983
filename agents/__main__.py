"""``python -m agents`` runs the node agent, ``python -m agents scan FILE`` reads a saved kernel log."""

import argparse
import json
import logging
import mmap
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import BinaryIO

from agents import VERSION, config, execute, loop, portal, process, spool, store
from agents.probes import follow, nvml
from kcover import xid

log = logging.getLogger("agents")

BLOCK = 4 << 20  # bytes of standard input that are scanned at once


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 for what cannot be read, 2 for settings that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m agents", description="kcover's node agent")
    parser.add_argument("--config", type=pathlib.Path, metavar="FILE", help="YAML settings; the environment wins")
    parser.add_argument("--version", action="version", version=VERSION)
    verbs = parser.add_subparsers(dest="verb", title="instead of running the agent")
    scan = verbs.add_parser("scan", help="print the faults in a saved kernel log, one JSON object a line")
    scan.add_argument("file", metavar="FILE", help="the log, - for standard input")
    given = parser.parse_args(arguments)
    if given.verb == "scan":
        return _scan(given.file)
    return _run(given.config)


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
    try:
        settings = config.load(file, os.environ)
        agent = _agent(settings)
    except config.ConfigError as error:
        print(f"agents: {error}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("agent %s on %s, log %s, portal %s", VERSION, settings.node, settings.kmsg, settings.url)
    process.run(agent, stop=stop)
    return 0


def _agent(settings: config.Config) -> loop.Agent:
    """The agent of this machine. Raises ConfigError for settings that this machine cannot satisfy."""
    if not settings.url:
        raise config.ConfigError("KCOVER_AGENT_URL: accepted is the portal's address, such as https://portal.example")
    for name in settings.unknown:
        log.warning("settings: %s is not known", name)
    try:
        if not settings.read_token():
            raise config.ConfigError("KCOVER_AGENT_TOKEN (or _FILE): accepted is an agent's or an enrolment token")
    except OSError as error:
        raise config.ConfigError(f"KCOVER_AGENT_TOKEN_FILE: {error}") from error
    try:
        settings.read_boot_id()
    except OSError as error:
        raise config.ConfigError(f"KCOVER_AGENT_BOOT_ID: {error}; accepted is a file with the boot id") from error
    try:
        folder = store.Folder(settings.spool)
    except BlockingIOError as error:
        raise config.ConfigError(f"KCOVER_AGENT_SPOOL={settings.spool}: another agent uses it") from error
    except OSError as error:
        raise config.ConfigError(f"KCOVER_AGENT_SPOOL={settings.spool}: {error}") from error
    try:
        uplink = portal.Portal(
            url=settings.url,
            node=settings.node,
            token=settings.read_token,
            store=folder,
            clock=_clock,
            cluster=settings.cluster,
            ca_file=settings.ca_file,
        )
    except OSError as error:
        raise config.ConfigError(f"KCOVER_AGENT_CA_FILE={settings.ca_file}: {error}") from error
    return loop.Agent(
        settings,
        sources=[follow.source(settings.kmsg)],
        clock=_clock,
        boot_id=settings.read_boot_id,
        inventory=nvml.inventory,
        uplink=uplink,
        spool=spool.Spool(folder),
        executor=execute.Host(reboot_command=settings.reboot_command),
    )


def _clock() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    sys.exit(main())
