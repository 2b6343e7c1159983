"""``python -m simulator serve`` and ``python -m simulator inject``."""

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
from simulator.world import mix, world
from simulator.world.pace import Pace

_URL = "http://127.0.0.1:8001"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, and give the exit status: 0, 1 for what went wrong, 2 for arguments that cannot be used."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        if options.command == "inject":
            return _inject(options)
        if bool(options.portal) != bool(options.enrol_token_file):
            parser.error("--portal and --enrol-token-file: give both (agents report to a portal) or neither")
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
        for noisy in (
            "agents.logs",
            "agents.loop",
            "agents.commands",
        ):  # one line a fault is plenty for one node, not for hundreds
            logging.getLogger(noisy).setLevel(logging.ERROR)
        asyncio.run(server.serve(_settings(options)))
    except OSError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulator", description="A GPU cluster that is not there.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve", help="serve a Kubernetes API", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=_whole(0, 65535), default=8001, help="0 chooses a free one, which is printed")
    add("--nodes", type=_whole(1, 20_000), default=200, help="nodes with GPUs, spares included")
    add("--gpus", type=_whole(1, 16), default=8, help="GPUs per node")
    add("--cpu-nodes", type=_whole(0, 1000), default=None, help="nodes without GPUs (default: one in 25)")
    add("--node-bytes", type=_whole(0, 100_000), default=0, help="pad Node objects to about this size")
    add("--no-workloads", action="store_true", help="no pods but those of daemon sets")
    add("--kubeconfig-out", type=Path, metavar="FILE", help="write a kubeconfig that leads here")
    add("--portal", type=_url, metavar="URL", help="let agents report to this portal")
    add("--enrol-token-file", type=Path, metavar="FILE", help="the agents' enrolment token; waited for")
    add("--cluster", metavar="NAME", help="the cluster's name, where the token does not name it")
    add("--heartbeat-seconds", type=_seconds(1, 86_400), default=30.0, help="between two reports of an agent")
    pace = Pace()
    add("--boot-seconds", type=_seconds(0, 86_400), default=pace.boot, help="how long a reboot takes")
    add("--grace-seconds", type=_seconds(0, 3600), default=pace.grace, help="the longest a pod takes to end")
    add("--notice-seconds", type=_seconds(0, 3600), default=None, help="until a silent node is NotReady")
    add("--repair-seconds", type=_seconds(0, 10**7), default=pace.repair, help="until what no reboot cures is mended")
    add("--faults-per-hour", type=_seconds(0, 10**6), default=0.0, help="hardware faults by themselves, fleet-wide")
    add("--preset", choices=mix.PRESETS, default="mid", help="the mix of those faults")
    add("--noise", choices=(*mix.NOISE_LEVELS, "none"), default="mixed", help="programs' own faults beside them")
    add("--seed", type=_whole(0, 2**32), default=0, help="of everything that is drawn")

    inject = commands.add_parser("inject", help="let a fault befall a node of a running simulator")
    add = inject.add_argument
    add("--node", required=True)
    kind = inject.add_mutually_exclusive_group(required=True)
    kind.add_argument("--xid", type=_whole(0, 2**31 - 1), metavar="N")
    kind.add_argument("--sxid", type=_whole(0, 2**31 - 1), metavar="N")
    kind.add_argument("--hang", action="store_true", help="the whole machine stops answering")
    add("--gpu", type=_whole(0, 63), metavar="I", help="index of the GPU (0)")
    add("--count", type=_whole(1, 10_000), default=1, help="how often the line is printed")
    add("--line", help="print this instead of the driver's line")
    add("--drill", action="store_true", help="as a program writes it to the kernel log (facility 1)")
    add("--cure", choices=mix.CURES, help="what takes it away")
    add("--never-returns", action="store_true", help="the node's next reboot never ends")
    add("--kill", action="store_true", help="the programs on the GPU crash")
    add("--url", type=_url, default=_URL, help=f"the simulator ({_URL})")
    return parser


def _settings(options: argparse.Namespace) -> server.Settings:
    pace = Pace(
        boot=options.boot_seconds,
        grace=options.grace_seconds,
        # A node whose boot is quick is noticed missing all the same: that is what a demo is to show.
        notice=min(Pace().notice, options.boot_seconds / 4)
        if options.notice_seconds is None
        else options.notice_seconds,
        settle=min(Pace().settle, options.boot_seconds / 4),
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
        with urllib.request.urlopen(request, timeout=10) as response:
            done = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            print(f"simulator: {_why(error)}", file=sys.stderr)
        return 1
    except urllib.error.URLError as error:
        print(f"simulator: nobody answers at {options.url}: {error.reason}", file=sys.stderr)
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
    return f"{body.get('error', error.reason)}" + (f" (there are {known}, …)" if known else "")


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return value

    return parse


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return parse


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL such as {_URL}")
    return text.rstrip("/")


if __name__ == "__main__":
    sys.exit(main())
