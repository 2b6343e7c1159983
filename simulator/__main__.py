"""The commands ``python -m simulator serve`` and ``python -m simulator inject``."""

import argparse
import asyncio
import json
import logging
import math
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulator import server
from simulator.world import injector, mix, world
from simulator.world.pace import Timings

_URL = "http://127.0.0.1:8001"


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0 for success, 1 for a failure, 2 for invalid arguments."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        if options.command == "inject":
            return _inject(options)
        if bool(options.portal) != bool(options.enrol_token_file):
            parser.error("--portal and --enrol-token-file: set both, so that agents report to a portal, or neither")
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
        for noisy in (
            "agents.probes.log.reader",
            "agents.agent",
            "agents.commands.journal",
        ):  # one line for each fault is too much for hundreds of nodes
            logging.getLogger(noisy).setLevel(logging.ERROR)
        asyncio.run(server.serve(_settings(options)))
    except OSError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator", description="A simulated GPU cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve", help="serve a Kubernetes API", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_whole(0, 65535), default=8001, help="port to listen on; 0 chooses a free one and prints it")
    add("--nodes", type=_whole(1, 20_000), default=200, help="nodes with GPUs, spares included")
    add("--gpus", type=_whole(1, 16), default=8, help="GPUs per node")
    add("--cpu-nodes", type=_whole(0, 1000), default=None, help="nodes without GPUs (default: one in 25)")
    add("--node-bytes", type=_whole(0, 100_000), default=0, help="pad Node objects to about this many bytes")
    add("--no-workloads", action="store_true", help="only DaemonSets create pods")
    add("--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig for this simulator")
    add("--portal", type=_url, metavar="URL", help="portal that the agents report to")
    add(
        "--enrol-token-file",
        type=Path,
        metavar="FILE",
        help="file with the agents' enrolment token; the simulator waits for it",
    )
    add("--cluster", metavar="NAME", help="name of the cluster, if the token does not contain it")
    add("--heartbeat-seconds", type=_seconds(1, 86_400), default=30.0, help="seconds between two reports of an agent")
    pace = Timings()
    add("--boot-seconds", type=_seconds(0, 86_400), default=pace.boot, help="how long a reboot takes")
    add("--grace-seconds", type=_seconds(0, 3600), default=pace.grace, help="maximum time a pod takes to end")
    add("--notice-seconds", type=_seconds(0, 3600), default=None, help="time until a silent node is NotReady")
    add(
        "--repair-seconds",
        type=_seconds(0, 10**7),
        default=pace.repair,
        help="time until a fault that no reboot cures is repaired",
    )
    add("--faults-per-hour", type=_seconds(0, 10**6), default=0.0, help="random hardware faults in the whole fleet")
    add("--quiet-seconds", type=_seconds(0, 10**6), default=0.0, help="time before the first of these faults")
    add("--preset", choices=mix.PRESETS, default="mid", help="failure rates of these faults")
    add("--noise", choices=(*mix.NOISE_LEVELS, "none"), default="mixed", help="level of program faults in addition")
    add("--seed", type=_whole(0, 2**32), default=0, help="seed of all random choices")

    inject = commands.add_parser("inject", help="inject a fault into a node of a running simulator")
    add = inject.add_argument
    add("--node", required=True)
    kind = inject.add_mutually_exclusive_group(required=True)
    kind.add_argument("--xid", type=_whole(0, 2**31 - 1), metavar="N")
    kind.add_argument("--sxid", type=_whole(0, 2**31 - 1), metavar="N")
    kind.add_argument("--hang", action="store_true", help="hang the whole machine")
    add("--gpu", type=_whole(0, 63), metavar="I", help="index of the GPU (default: 0)")
    add("--count", type=_whole(1, 10_000), default=1, help="how often to print the line")
    add("--line", help="kernel log line to print instead of the driver's")
    add("--drill", action="store_true", help="write the line as a program does (facility 1)")
    add("--cure", choices=injector.CURES, help="what cures the fault")
    add("--never-returns", action="store_true", help="the node's next reboot never ends")
    add("--kill", action="store_true", help="crash the programs on the GPU")
    add("--url", type=_url, default=_URL, help=f"URL of the simulator (default: {_URL})")
    return parser


def _settings(options: argparse.Namespace) -> server.Settings:
    pace = Timings(
        boot=options.boot_seconds,
        grace=options.grace_seconds,
        # Even a node that boots quickly is seen as NotReady: a demo must show that.
        notice=min(Timings().notice, options.boot_seconds / 4)
        if options.notice_seconds is None
        else options.notice_seconds,
        settle=min(Timings().settle, options.boot_seconds / 4),
        repair=options.repair_seconds,
    )
    return server.Settings(
        host=options.host,
        port=options.port,
        size=world.Size(
            nodes=options.nodes,
            gpus=options.gpus,
            cpu_nodes=options.cpu_nodes,
            node_bytes=options.node_bytes,
            workloads=not options.no_workloads,
        ),
        pace=pace,
        seed=options.seed,
        kubeconfig_out=options.kubeconfig_out,
        portal=options.portal,
        enrol_token_file=options.enrol_token_file,
        cluster=options.cluster,
        heartbeat=options.heartbeat_seconds,
        faults_per_hour=options.faults_per_hour,
        preset=options.preset,
        quiet_seconds=options.quiet_seconds,
        noise="" if options.noise == "none" else options.noise,
    )


def _inject(options: argparse.Namespace) -> int:
    body: dict[str, Any] = {"node": options.node, "count": options.count}
    if options.hang:
        body |= {"kind": "hang"}
    elif options.sxid is not None:
        body |= {"kind": "sxid", "code": options.sxid}
    else:
        body |= {"kind": "xid", "code": options.xid}
    for name in ("gpu", "line", "cure"):
        if getattr(options, name) is not None:
            body[name] = getattr(options, name)
    body |= {"drill": options.drill, "kill": options.kill, "returns": not options.never_returns}
    request = urllib.request.Request(
        f"{options.url}/sim/faults",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # nosec B310
            done = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            print(f"simulator: {_why(error)}", file=sys.stderr)
        return 1
    except urllib.error.URLError as error:
        print(f"simulator: no response from {options.url}: {error.reason}", file=sys.stderr)
        return 1
    for line in done["lines"]:
        print(line)
    return 0


def _why(error: urllib.error.HTTPError) -> str:
    try:
        body = json.loads(error.read())
    except ValueError:
        return f"{error.code} {error.reason}"
    if "field" in body:
        return f"{body['field']}: {body['reason']}"
    known = ", ".join(body.get("near") or body.get("nodes") or ())
    return f"{body.get('error', error.reason)}" + (f" (known: {known}, …)" if known else "")


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, not {text!r}")
        return value

    return parse


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} to {most:g}, not {text!r}")
        return value

    return parse


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"must be a URL such as {_URL}, not {text!r}")
    return text.rstrip("/")


if __name__ == "__main__":
    sys.exit(main())
