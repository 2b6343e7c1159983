"""A portal in which people have set something of every kind, and the way to empty it."""

import json
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command

from kcover.repairs import repairs
from kcover.validation import profiles
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken, GroupMapping, Passkey, RecoveryCode, RoleBinding, TotpDevice, User
from kcover_portal.accounts.services import oidc, people, roles, saved_views
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.services.sinks import SINKS
from kcover_portal.checks.services import validation_profiles
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings, registry
from kcover_portal.machines.models import Driver
from kcover_portal.machines.services.driver_settings import DRIVERS
from kcover_portal.notify.models import Channel
from kcover_portal.notify.services.channels import CHANNELS, make_route
from kcover_portal.notify.services.namespace_routes import make_namespace_route
from kcover_portal.operate.settings_file import transfer
from kcover_portal.policies import services as policies
from kcover_portal.repairs.services import vendor_terms
from kcover_portal.sources.models import Source
from kcover_portal.sources.services.source_settings import SOURCES
from tests import moment
from tests.portal.rescue.world import CORDON, HEAL

NOW = moment.START
BY: dict[str, Any] = {"actor": "user:ann", "now": NOW}
PASSPHRASE = "correct horse battery"
KUBECONFIG = "a kubeconfig"


def fill() -> Cluster:
    """Sets something of every kind."""
    east = registry.add("east", kubeconfig=KUBECONFIG, context="main", mode="enforce", **BY)
    registry.add("west", in_cluster=True, mode="shadow", **BY)
    settings = {"gpu_hour_price": "2.5", "topology": {"pool": "example.com/pool", "rack": "example.com/rack"}}
    secret = {
        "decision_url": "https://decide.example/v1?key=0123456789abcdef0123",
        "decision_secret": "0123456789abcdef0",
    }
    cluster_settings.set_cluster(east, {**settings, **secret, "burn_in": "new"}, reason="", **BY)
    cluster_settings.set_guards(east, {"cooldown": 600, "storm": {"enabled": False}}, reason="", **BY)
    _people(east)
    _rows(east)
    policies.apply(HEAL, author="user:ann", reason="", now=NOW)
    policies.apply(CORDON, author="user:ann", reason="", now=NOW)
    document = {**profiles.DEFAULTS["burn-in"].to_json()}
    validation_profiles.change("burn-in", document, reason="", **BY)
    vendor_terms.set_terms("Acme", repairs.Terms(accept_days=2, return_days=None), reason="", **BY)
    return east


def _people(east: Cluster) -> None:
    roles.make_role("night-shift", ["read", "approve"], giver=None, **BY)
    ann = accounts.make_user("ann", password="a long password 1", role="admin", created_by="user:root", now=NOW)
    bob = accounts.make_user(
        "bob", password="a long password 2", role="night-shift", cluster=east, pool="a", created_by="user:ann", now=NOW
    )
    TotpDevice(user=ann, seed="JBSWY3DPEHPK3PXP", last_step=7, created_at=NOW).save()
    Passkey.objects.create(
        user=ann, name="key", credential="abc", public_key=b"\0\1\xff", sign_count=3, transports=["usb"], created_at=NOW
    )
    RecoveryCode.objects.create(user=ann, digest="0" * 64)
    oidc.link(ann, issuer="https://sso.example", subject="42", **BY)
    oidc.map_group("gpu-admins", "admin", cluster=east, **BY)
    oidc.map_group("gpu-admins east", "viewer", cluster=None, **BY)  # no other's name, with its cluster
    saved_views.save(ann, listing="nodes", name="mine", query="q=gpu", shared=True, opens_first=True, now=NOW)
    people.disable(bob, **BY)


def _rows(east: Cluster) -> None:
    driver = {"url": "https://{node}-bmc.example", "username": "root", "password": "hush-hush"}
    DRIVERS.make(Driver(name="bmc", kind="redfish", cluster=east), driver, **BY)
    hook = {"address": "https://siem.example/in/0123456789abcdef0123", "secret": "0123456789abcdef"}
    SINKS.make(Sink(name="siem", kind="webhook"), hook, **BY)
    SINKS.make(Sink(name="log", kind="syslog"), {"address": "tls://log.example:6514"}, **BY)
    slack = {"url": "https://hooks.slack.com/services/T0/B0/XYZ", "person": User.objects.get(username="ann")}
    CHANNELS.make(Channel(name="chat", kind="slack"), slack, **BY)
    signed = {"url": "https://hook.example/kcover", "secret": "0123456789abcdef", "for_owners": False}
    CHANNELS.make(Channel(name="hook", kind="webhook"), signed, **BY)
    team = {"url": "https://hooks.slack.com/services/T0/B0/OWN", "for_owners": True}
    owners = CHANNELS.make(Channel(name="owners", kind="slack"), team, **BY)
    CHANNELS.make(Channel(name="pager", kind="pagerduty"), {"secret": "0" * 32}, **BY)
    make_route(owners, kinds=["incident.opened"], cluster=east, least="warning", **BY)
    make_namespace_route(owners, cluster=east, namespace="team-*", **BY)
    SOURCES.make(Source(name="loki", kind="loki", cluster=east), {"url": "https://loki.example", "token": "t"}, **BY)
    SOURCES.change(Source.objects.get(cluster=east, kind="pods"), {"enabled": False}, **BY)


def empty() -> None:
    """Deletes all rows, but the audit log, as if the database were new."""
    for first in (ApiToken, RoleBinding, GroupMapping):
        first.objects.all().delete()
    for model in apps.get_models():
        if model._meta.app_label not in ("contenttypes", "auth", "ledger"):
            model._base_manager.all().delete()


def exported(*, secrets: bool = False) -> str:
    return transfer.export(PASSPHRASE if secrets else None, **BY)


def imported(text: str | bytes, *, secrets: bool = True, **options: Any) -> transfer.Outcome:
    content = text.encode() if isinstance(text, str) else text
    return transfer.import_file(content, passphrase=(lambda: PASSPHRASE) if secrets else None, **options, **BY)


def sections(text: str) -> dict[str, Any]:
    """The file without what differs between two exports with secrets."""
    found: dict[str, Any] = json.loads(text)
    found.pop("secrets", None)
    return found


def by_command(name: str, folder: Path, text: str, *options: str) -> None:
    path = folder / "settings.json"
    path.write_text(text)
    call_command(name, str(path), *options)
