"""The parameters of ``/status``. Invalid combinations are rejected with the parameter's name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rest_framework.request import Request

from kcover import reasons
from kcover.checks import autopilot, autopilot_text
from kcover.values.quote import short_repr
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.checks import services as check_runs
from kcover_portal.fleet.models import OBJECT_NAME, Cluster, Node
from kcover_portal.fleet.services import node_selection
from kcover_portal.lib.errors import FieldError

OF_IPERF = ("workload", "pclients", "startport", "cleanup", "plane", "serverspernode", "clientsperiface")
PARAMETERS = (
    *("cluster", "check", "host", "batch", "job", "nodelabel", "r", "pingnodes", "wait"),
    *OF_IPERF,
    "storageclass",
)
OFFERED = tuple(autopilot.CHECKS)
MAX_WAIT_SECONDS = 600
DEFAULT_WAIT_SECONDS = 300
MAX_CLIENTS = 64  # of iperf per node, each with its own port
DATA_PLANE_PARAMETERS = ("serverspernode", "clientsperiface")  # of Autopilot before its rings
MAX_PEERS = 256  # nodes that an agent pings in one check
MAX_LIST_CHARACTERS = 100_000  # in a list of names


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusQuery:
    """The requested checks and nodes.

    ``wait``: seconds that the caller waits. ``storage_class``: for the check pvc; "" means the cluster's setting.
    ``heading``: the first line of the answer.
    """

    cluster: Cluster
    nodes: Sequence[Node]
    checks: tuple[str, ...]
    level: int
    batch: int
    peers: tuple[str, ...]
    wait: int
    traffic: check_runs.Traffic
    storage_class: str
    heading: str


def read(request: Request) -> StatusQuery:
    """Reads the parameters and checks the permission.

    Raises FieldError or FieldErrors for parameters, Forbidden, or Unanswered if the cluster does not answer.
    """
    base.known_only(request, PARAMETERS)
    cluster = cluster_of(request)
    require(request, Verb.CHECK, cluster)
    checks = checks_of(_names(request, "check"))
    level = _whole(request, "r", default=1, least=autopilot.DCGM_LEVELS[0], most=autopilot.DCGM_LEVELS[-1])
    batch = _whole(request, "batch", default=0, least=0, most=100_000)
    wait = _whole(request, "wait", default=DEFAULT_WAIT_SECONDS, least=0, most=MAX_WAIT_SECONDS)
    traffic, storage_class = _traffic(request, checks), _storage_class(request, checks)
    hosts, pinged = _names(request, "host"), "pingnodes" in request.query_params
    given = {name: request.query_params.get(name, "") for name in ("job", "nodelabel")}
    nodes = _selected(cluster, "host", hosts=() if hosts == ["all"] else hosts, **given)
    peers = _selected(cluster, "pingnodes", hosts=_names(request, "pingnodes")) if pinged else []
    if not nodes:
        raise FieldError("cluster", reasons.of("no_gpu_nodes", cluster=cluster.name))
    if "iperf" in checks and min(batch, len(nodes)) > check_runs.MAX_RING_NODES:
        raise FieldError("batch", reasons.of("check_ring_too_large", most=check_runs.MAX_RING_NODES))
    if len(peers) > MAX_PEERS:
        raise FieldError("pingnodes", reasons.of("too_many_peers", most=MAX_PEERS))
    addresses = tuple(peer.address or peer.name for peer in peers)
    return StatusQuery(
        cluster=cluster,
        nodes=nodes,
        checks=checks,
        level=level,
        batch=batch,
        peers=addresses,
        wait=wait,
        traffic=traffic,
        storage_class=storage_class,
        heading=autopilot_text.heading(hosts=",".join(hosts), job=given["job"], label=given["nodelabel"]),
    )


def _traffic(request: Request, checks: Sequence[str]) -> check_runs.Traffic:
    """Returns the traffic of iperf's ring. ``cleanup`` is accepted without effect: servers end with their step."""
    for name in OF_IPERF if "iperf" not in checks else ():
        _goes_with(request, name, "iperf")
    workload = request.query_params.get("workload", "ring")
    if workload != "ring":
        raise FieldError("workload", reasons.of("workload_unknown", workload=short_repr(workload)))
    port = _whole(request, "startport", default=autopilot.IPERF_START_PORT, least=1024, most=65_000)
    given = [name for name in DATA_PLANE_PARAMETERS if name in request.query_params]
    plane = request.query_params.get("plane", "data" if given else "")
    if plane not in ("", *check_runs.PLANES):
        raise FieldError("plane", reasons.of("plane_unknown", plane=short_repr(plane)))
    if given and plane == "mgmt":
        raise FieldError(given[0], reasons.of("plane_of_data_only"))
    if "serverspernode" in given and "pclients" in request.query_params:
        raise FieldError("pclients", reasons.of("one_of_parameters", first="pclients", second="serverspernode"))
    if plane == "mgmt":
        return check_runs.Traffic(clients=1, port=port)
    servers = "serverspernode" if "serverspernode" in given else "pclients"
    return check_runs.Traffic(
        clients=_whole(request, servers, default=autopilot.IPERF_CLIENTS, least=1, most=MAX_CLIENTS),
        streams=_whole(request, "clientsperiface", default=1, least=1, most=MAX_CLIENTS),
        port=port,
        plane=plane or "mgmt",
    )


def _storage_class(request: Request, checks: Sequence[str]) -> str:
    if "pvc" not in checks:
        _goes_with(request, "storageclass", "pvc")
    name = request.query_params.get("storageclass")
    if name is not None and (len(name) > 253 or not re.match(OBJECT_NAME, name)):
        raise FieldError("storageclass", reasons.of("storage_class_invalid", value=short_repr(name)))
    return name or ""


def _goes_with(request: Request, name: str, check: str) -> None:
    if name in request.query_params:
        raise FieldError(name, reasons.of("requires_check", check=check))


def _selected(cluster: Cluster, parameter: str, *, hosts: Sequence[str], **given: str) -> list[Node]:
    """Selects nodes; ``parameter`` is the one with host names. Raises FieldError, Unanswered."""
    try:
        return node_selection.nodes(cluster, hosts=hosts, **given)
    except FieldError as error:
        raise FieldError(parameter if error.field == "host" else error.field, error.reason) from error


def cluster_of(request: Request) -> Cluster:
    """Returns the given cluster, the token's, or the only visible one. Raises FieldError."""
    if name := request.query_params.get("cluster"):
        return base.cluster_named(request, name)
    who = principal(request)
    if isinstance(who, ApiToken) and who.cluster is not None:
        return who.cluster
    seen = list(accounts.clusters_of(who).order_by("name")[:2])
    if len(seen) != 1:
        raise FieldError("cluster", reasons.of("cluster_ambiguous" if seen else "cluster_none"))
    return seen[0]


def checks_of(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the checks without repetition; [] and ``all`` mean the periodic ones. Raises FieldError."""
    wanted = [check for name in names or ["all"] for check in (autopilot.PERIODIC_CHECKS if name == "all" else (name,))]
    unknown = [name for name in wanted if name not in OFFERED]
    if unknown:
        known = ", ".join(("all", *OFFERED))
        raise FieldError("check", reasons.of("check_unsupported", checks=", ".join(unknown)[:200], known=known))
    return tuple(dict.fromkeys(wanted))


def _names(request: Request, name: str) -> list[str]:
    """Reads a comma-separated list without repetition."""
    text = ",".join(request.query_params.getlist(name))
    if len(text) > MAX_LIST_CHARACTERS:
        raise FieldError(name, reasons.of("names_too_long", most=MAX_LIST_CHARACTERS))
    listed = [item.strip() for item in text.split(",")]
    if name in request.query_params and not any(listed):
        raise FieldError(name, reasons.of("names_missing"))
    return list(dict.fromkeys(item for item in listed if item))


def _whole(request: Request, name: str, *, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise FieldError(name, reasons.of("number_out_of_range", least=least, most=most, value=short_repr(text)))
    return int(text)
