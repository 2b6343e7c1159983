"""Every parser that takes bytes from outside, each with the errors that it may raise and what must hold.

A target returns, or raises an error of ``refusals``. Anything else is a bug, as is an input that takes seconds.
"""

import base64
import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import django
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
if not settings.configured:
    django.setup()

from agents.probes.log import kmsg, repeats
from kcover import preflight, wire
from kcover.faults import machine_check, nvlink5, xid
from kcover.machines import machine_drivers
from kcover.policy import document
from kcover.preflight import bandwidth
from kcover.repairs import mail_replies
from kcover.sources import alertmanager, gpud, health_events, loki, pod_log, prometheus
from kcover.sources.observation import ObservationBatch, Unreadable
from kcover.validation import profiles
from kcover.values import masked_addresses
from kcover_portal.anchors import signed_heads
from kcover_portal.api.agent import jwt_claims, report_decoder
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import kubeconfig
from kcover_portal.kube import errors as kube_errors, kubeconfig_rules
from kcover_portal.machines.drivers import redfish
from kcover_portal.operate.settings_file import document as settings_file
from kcover_portal.policies.services import yaml_reader

ROOT = Path(__file__).resolve().parents[1]
NOW = datetime(2026, 11, 23, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``run`` parses; ``refusals``: the errors that say that the input is invalid."""

    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = ()

    def __call__(self, data: bytes) -> None:
        """Parses the data. Raises what is not a refusal."""
        try:
            self.run(data)
        except self.refusals as error:
            str(error)  # people see it


def _kernel_log(data: bytes) -> None:
    list(xid.scan(data))
    text = data.decode("utf-8", "replace")
    records = []
    for line in text.splitlines():
        header, message = kmsg.split_header(line)
        facility, sequence = (header.facility, header.sequence) if header else (0, None)
        records.append(kmsg.Record(text=message, at=NOW, facility=facility, sequence=sequence))
        machine_check.is_uncorrected(line)
        nvlink5.decode(found) if (found := xid.parse_line(line)) else None
    repeats.faults(records, now=NOW)
    list(xid.parse_lines(text.splitlines()))


def _report(data: bytes) -> None:
    """The fast decoder accepts nothing that the strict one refuses, and what was read can be sent again."""
    found = wire.decode(data)
    again = wire.decode(json.dumps(wire.encode(found.report)).encode())
    assert again.report == found.report
    assert report_decoder.read(Cluster(pk=1, name="c"), data, now=NOW).node == found.report.node


def _policy(data: bytes) -> None:
    """A policy that was read can be written and read again without a change."""
    documents, problems = yaml_reader.read(yaml_reader.decode(data))
    for problem in problems:
        str(problem)
    for item in documents:
        try:
            policy = document.read(item.content)
        except document.PolicyInvalid as error:
            for each in error.problems:
                item.at(each.path)
                str(each.reason)
            continue
        assert document.read(document.render(policy)) == policy
        masked_addresses.mask(item.content)


def _kubeconfig(data: bytes) -> None:
    kubeconfig_rules.check(data.decode("utf-8", "surrogateescape"))


def _kubeconfig_file(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        kubeconfig.read(Path(file.name))


def _source(data: bytes) -> None:
    """The answers and requests of sources: everything that was read can be stored."""
    body = json.loads(data)
    query = loki.queries({})[0]
    readers: tuple[Callable[[], ObservationBatch], ...] = (
        lambda: alertmanager.read(body, now=NOW),
        lambda: health_events.read(body, content_type="application/json", headers={}, now=NOW),
        lambda: health_events.read(
            body, content_type="application/json", headers={}, maintenance_types=["maintenance"], now=NOW
        ),
        lambda: loki.read(body, query, now=NOW).batch,
        lambda: gpud.read(body, [], node="n", shown={}, now=NOW).batch,
        lambda: gpud.read([], body, node="n", shown={}, now=NOW).batch,
        lambda: prometheus.read(body, query=prometheus.DEFAULT_QUERY, before=prometheus.Before(), now=NOW).batch,
        lambda: prometheus.read(body, query="up", before=prometheus.Before(), now=NOW).batch,
    )
    for read in readers:
        with contextlib.suppress(Unreadable):
            _check_storable(read())


def _check_storable(batch: ObservationBatch) -> None:
    for one in batch.observations:
        assert "\0" not in f"{one.node}{one.code}{one.message}{one.advice}"
        one.key.encode()


def _pod_log(data: bytes) -> None:
    container = pod_log.Container(namespace="n", pod="p", uid="u", name="c", node="n")
    for is_cut in (False, True):
        page = pod_log.read(data, container, is_cut=is_cut, now=NOW)
        assert page.is_whole or page.last >= 0
        _check_storable(page.batch)


def _profile(data: bytes) -> None:
    """A validation profile that was read can be written and read again without a change."""
    profile = profiles.parse(json.loads(data))
    assert profiles.parse(profile.to_json()) == profile


def _controller(data: bytes) -> None:
    """The path at which a controller's power is switched is one of the same server."""
    machine = redfish.Machine(url="https://bmc.example", username="", password="")
    document = json.loads(data)
    if not isinstance(document, dict):
        return
    seen = redfish.read_system(machine, document)
    assert urlsplit(machine.url + seen.target).netloc == "bmc.example"


def _bmc(data: bytes) -> None:
    """The annotation of a node leads to no host but those that an admin allows."""
    allowed = {"hosts": ["10.8.0.0/16", ".bmc.example"]}
    found = machine_drivers.address_of("https://{bmc}", allowed, node="gpu-1", bmc=data.decode("utf-8", "replace"))
    host = urlsplit(found).hostname or ""
    assert host.endswith(".bmc.example") or host.startswith("10.8.")


def _token(data: bytes) -> None:
    """The claims of a service account's token; the signature is the API server's business."""
    text = data.decode("utf-8", "replace")
    if jwt_claims.is_token(text):
        jwt_claims.read(text, now=NOW)
    claims = base64.urlsafe_b64encode(data).decode().rstrip("=")
    jwt_claims.read(f"eyJhbGciOiJSUzI1NiJ9.{claims}.x", now=NOW)


def _proof(data: bytes) -> None:
    verifier.verify(verifier.read(data.decode("utf-8", "replace")), {})


def _load_verifier() -> object:
    """tools/verify_proof.py, which belongs to no package. By the usual import, so that atheris sees it."""
    sys.path.append(str(ROOT / "tools"))
    try:
        return importlib.import_module("verify_proof")
    finally:
        sys.path.pop()


verifier = _load_verifier()

TARGETS = {
    "kernel_log": Target(run=_kernel_log),
    "report": Target(run=_report, refusals=(wire.EnvelopeError,)),
    "answer": Target(
        run=lambda data: wire.decode_answer(json.loads(data)),
        refusals=(wire.WireError, ValueError, RecursionError),
    ),
    "policy": Target(run=_policy, refusals=(yaml_reader.Unreadable,)),
    "kubeconfig": Target(run=_kubeconfig, refusals=(kube_errors.RefusedByServer,)),
    "kubeconfig_file": Target(run=_kubeconfig_file, refusals=(kubeconfig.KubeconfigInvalid,)),
    "source": Target(run=_source, refusals=(ValueError, RecursionError)),
    "pod_log": Target(run=_pod_log),
    "mail": Target(run=mail_replies.read, refusals=(mail_replies.ReplyInvalid,)),
    "preflight": Target(run=preflight.read, refusals=(preflight.ReportInvalid,)),
    "bandwidth": Target(
        run=lambda data: bandwidth.read(data.decode("utf-8", "replace")), refusals=(bandwidth.BandwidthInvalid,)
    ),
    "profile": Target(run=_profile, refusals=(profiles.ProfileInvalid, ValueError, RecursionError)),
    "controller": Target(run=_controller, refusals=(redfish.Unreadable, ValueError, RecursionError)),
    "bmc": Target(run=_bmc, refusals=(machine_drivers.NoAddress,)),
    "token": Target(run=_token, refusals=(Refusal,)),
    "anchor": Target(
        run=lambda data: signed_heads.parse(data.decode("utf-8", "replace")), refusals=(signed_heads.AnchorUnreadable,)
    ),
    "settings_file": Target(run=settings_file.read, refusals=(settings_file.FileInvalid,)),
    "proof": Target(run=_proof, refusals=(verifier.Broken,)),
}
