"""The fleet of the ingest measurements: nodes, credentials and the report of each node.

A report is 2.2 KB: an inventory of 8 GPUs and 8 passing checks, the same every time, in the order of ``wire.encode``.
That is the largest heartbeat of an agent that repeats all its values. A bare report is the heartbeat of the project's
agents, which send only changes.
"""

import hashlib
from datetime import datetime

import psycopg

CLUSTER = "bench"
RECENT_BATCHES = 8  # that the row of a node keeps (``kcover_portal.fleet.services.agent_reports.REMEMBERED_BATCHES``)
_GPU = b'{"index":%d,"uuid":"GPU-%08x-0%d","pci":"0000:%02x:00.0","model":"NVIDIA H100 80GB HBM3","serial":"%08d%d"}'
_CHECK = (
    b'{"name":"remapped","device":"GPU-%08x-0%d","status":"pass","value":0.0,"unit":"rows",'
    b'"message":"0 remapped, none pending"}'
)
_BARE = b'","faults":[%s],"checks":[]'


class Reporter:
    """The reports of one node; ``render`` returns the whole HTTP request."""

    __slots__ = ("_head", "_number", "_tail", "name")

    def __init__(self, number: int, *, path: str = "/api/v1/agent/reports", scheme: str = "Bearer") -> None:
        self._number, self.name = number, name_of(number)
        gpus = b",".join(_GPU % (gpu, number, gpu, 16 + gpu, number, gpu) for gpu in range(8))
        checks = b",".join(_CHECK % (number, gpu) for gpu in range(8))
        self._tail = (
            b'","inventory":{"driver":"580.95.05","kernel":"6.8.0-45-generic","gpus":[%s]},'
            b'"faults":[%%s],"checks":[%s]' % (gpus, checks)
        )
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {scheme} {secret_of(number)}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def render(self, serial: int, *, sent_at: bytes, faults: bytes = b"", says: str = "all") -> bytes:
        """A request with ``serial`` in its batch id. ``says``: "own" makes every report unique, without anything new;
        "bare" is a heartbeat only."""
        start = (
            b'{"version":1,"node":"%s","boot_id":"00000000-0000-4000-8000-%012x","batch_id":"%s","agent":"1.0.0",'
            b'"sent_at":"%s' % (self.name.encode(), self._number, batch_id(self._number, serial).encode(), sent_at)
        )
        tail = (_BARE if says == "bare" else self._tail) % faults
        end = b',"unknown":%d}' % serial if says == "own" else b"}"
        return b"%s%d\r\n\r\n%s%s%s" % (self._head, len(start) + len(tail) + len(end), start, tail, end)


def name_of(number: int) -> str:
    """The name of a node."""
    return f"gpu-{number:06d}"


def secret_of(number: int) -> str:
    """The credential of a node, for both the portal and the naive design (40 characters)."""
    return f"kca_bench-{number:030d}"


def batch_id(number: int, serial: int) -> str:
    """The batch id of the report of a node with this serial number."""
    return f"{number:08x}-0000-4000-8000-{serial:012x}"


def mark(number: int, serial: int) -> str:
    """The mark that a batch leaves in the row of its node (``kcover_portal.fleet.services.agent_reports``)."""
    return hashlib.blake2b(batch_id(number, serial).encode(), digest_size=6).hexdigest()


def moment(at: datetime) -> bytes:
    """A time in wire format."""
    return at.isoformat().replace("+00:00", "Z").encode()


# The first rows are created by the models of the portal, so that columns have their defaults; the others are copies.
FIRST = """from datetime import timedelta
from django.utils import timezone
from bench.ingest.reports import CLUSTER
from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Cluster, Node
now = timezone.now()
cluster = Cluster.objects.create(name=CLUSTER, created_at=now)
labels = {"kubernetes.io/arch": "amd64", "pool": "train", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
Node.objects.create(cluster=cluster, name="first", uid="first", in_cluster=True, pool="train", model="H100",
    labels=labels, ready=True, gpus=8, kubelet="v1.31.0", address="10.0.0.1", created_at=now)
ApiToken.objects.create(kind="agent", digest="first", prefix="kca_benc", cluster=cluster, node="first",
    created_by="bench", created_at=now, expires_at=now + timedelta(days=365))"""


def create_fleet(database: str, count: int) -> None:
    """Creates nodes as a watch leaves them, and their credentials, as copies of ``FIRST``."""
    names = [name_of(number) for number in range(count)]
    digests = [hashlib.sha256(secret_of(number).encode()).hexdigest() for number in range(count)]
    with psycopg.connect(database, autocommit=True) as connection:
        _copy(connection, "fleet_node", "name", {"name": names, "uid": names})
        _copy(connection, "accounts_apitoken", "node", {"node": names, "digest": digests})
        connection.execute("VACUUM ANALYZE")


def _copy(connection: psycopg.Connection, table: str, key: str, columns: dict[str, list[str]]) -> None:
    """Replaces the row ``first`` by one copy for each value in ``columns``."""
    given = ", ".join(columns)
    changed = ", ".join(f"'{name}', given.{name}" for name in columns)
    connection.execute(
        f"""INSERT INTO {table} SELECT made.* FROM {table} one,
            unnest({", ".join("%s::text[]" for _ in columns)}) AS given({given}),
            LATERAL jsonb_populate_record(one, jsonb_build_object(
                'id', nextval(pg_get_serial_sequence('{table}', 'id')), {changed})) AS made
            WHERE one.{key} = 'first'""".encode(),
        list(columns.values()),
    )
    connection.execute(f"DELETE FROM {table} WHERE {key} = 'first'".encode())
