"""The fleet of the ingest measurements: nodes, credentials and the report that each of them sends.

A report is 2.2 KB: an inventory of 8 GPUs and 8 passing checks, the same every time, which is what a heartbeat of an
agent that repeats itself looks like at its largest.
"""

import hashlib
from datetime import datetime, timedelta

import psycopg

CLUSTER = "bench"
_GPU = b'{"index":%d,"uuid":"GPU-%08x-0%d","pci":"0000:%02x:00.0","model":"NVIDIA H100 80GB HBM3","serial":"%08d%d"}'
_CHECK = (
    b'{"name":"remapped","device":"GPU-%08x-0%d","status":"pass","value":0,"unit":"rows",'
    b'"message":"0 remapped, none pending"}'
)


class Reporter:
    """The reports of one node; ``render`` makes the whole HTTP request."""

    __slots__ = ("_head", "_number", "_tail", "name")

    def __init__(self, number: int, *, path: str = "/api/v1/agent/reports", scheme: str = "Bearer") -> None:
        self._number, self.name = number, name_of(number)
        gpus = b",".join(_GPU % (gpu, number, gpu, 16 + gpu, number, gpu) for gpu in range(8))
        checks = b",".join(_CHECK % (number, gpu) for gpu in range(8))
        self._tail = (
            b'","agent":"1.0.0","inventory":{"driver":"580.95.05","kernel":"6.8.0-45-generic","gpus":[%s]},'
            b'"checks":[%s],"faults":[' % (gpus, checks)
        )
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {scheme} {secret_of(number)}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def render(self, serial: int, *, sent_at: bytes, faults: bytes = b"") -> bytes:
        """A request whose batch id carries ``serial``."""
        start = b'{"version":1,"node":"%s","boot_id":"00000000-0000-4000-8000-%012x","batch_id":"%s","sent_at":"%s' % (
            self.name.encode(),
            self._number,
            batch_id(self._number, serial).encode(),
            sent_at,
        )
        length = len(start) + len(self._tail) + len(faults) + 2
        return b"%s%d\r\n\r\n%s%s%s]}" % (self._head, length, start, self._tail, faults)


def name_of(number: int) -> str:
    """The node's name."""
    return f"gpu-{number:06d}"


def secret_of(number: int) -> str:
    """The node's credential, for the portal and for the naive design alike (40 characters)."""
    return f"kca_bench-{number:030d}"


def batch_id(number: int, serial: int) -> str:
    """The id of the node's report with that serial number."""
    return f"{number:08x}-0000-4000-8000-{serial:012x}"


def mark(number: int, serial: int) -> str:
    """What a report's batch leaves in its node's row (``kcover_portal.fleet.services.hearing``)."""
    return hashlib.blake2b(batch_id(number, serial).encode(), digest_size=6).hexdigest()


def moment(at: datetime) -> bytes:
    """A time as the wire has it."""
    return at.isoformat().replace("+00:00", "Z").encode()


def settle(database: str, count: int, *, now: datetime) -> None:
    """Makes the cluster, its nodes as a watch would have left them, and their credentials, by SQL."""
    labels = '{"kubernetes.io/arch": "amd64", "pool": "train", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}'
    with psycopg.connect(database, autocommit=True) as connection:
        cluster = connection.execute(
            """INSERT INTO fleet_cluster (name, kubeconfig, context, in_cluster, mode, resumes_as, pause_reason,
                    decision_mode, drills, reboot, job_image, job_namespace, event_namespace, hold_down, guards,
                    decision_url, decision_secret, decision_timeout, decision_fallback, ready_within, created_at,
                    watch_error, version)
                VALUES (%s, '', '', false, 'enforce', '', '', 'both', 'act', 'auto', '', '', '', 30, '{}', '', '', 5,
                    'policies', 1800, %s, '', '') RETURNING id""",
            [CLUSTER, now],
        ).fetchone()
        assert cluster is not None
        with connection.cursor().copy(
            """COPY fleet_node (cluster_id, name, uid, known, pool, model, labels, taints, conditions, marks,
                unschedulable, ready, boot_id, gpus, kubelet, address, driver, kernel, created_at) FROM STDIN"""
        ) as copy:
            for number in range(count):
                made = (cluster[0], name_of(number), f"uid-{number}", True, "train", "H100", labels, "[]", "{}", "{}")
                copy.write_row((*made, False, True, "", 8, "v1.31.0", "10.0.0.1", "", "", now))
        with connection.cursor().copy(
            """COPY accounts_apitoken (kind, name, digest, prefix, cluster_id, node, scopes, created_by, created_at,
                expires_at) FROM STDIN"""
        ) as copy:
            for number in range(count):
                digest = hashlib.sha256(secret_of(number).encode()).hexdigest()
                bound = ("agent", "", digest, "kca_benc", cluster[0], name_of(number), "[]", "bench", now)
                copy.write_row((*bound, now + timedelta(days=365)))
        connection.execute("VACUUM ANALYZE")
