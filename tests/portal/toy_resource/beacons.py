"""A complete kind of rows that people set: a lamp in the rack that another system switches.

The three places of a new kind: its model, its declaration with its entries in the audit log, and where the doors name
it (``doors``).
"""

from collections.abc import Mapping
from typing import Any

from django.db import models

from kcover import audit, reasons
from kcover.audit.base import Act
from kcover_portal.accounts.models import Verb
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import stored_secrets
from kcover_portal.lib.errors import FieldError
from kcover_portal.settings_rows import Flag, Given, Number, Pairs, Resource, Secret, Text


class Beacon(ModelWithSecrets):
    """A lamp. Its token is never shown again."""

    class Kind(models.TextChoices):
        RED = "red", "Red"
        BLUE = "blue", "Blue"

    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    # Its table is made by a test in a transaction, so the database does not know the relation.
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+", db_constraint=False)
    url = models.CharField(max_length=1000, blank=True)
    token = EncryptedTextField(bound_to="name", engine_only=True, sent_to="receiver", blank=True)
    seconds = models.PositiveIntegerField(default=60)
    settings = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        app_label = "toy_resource"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def receiver(self) -> str:
        """The server that gets the token."""
        return stored_secrets.server(self.url)


class BeaconAct(Act, subject="beacon {beacon}"):
    """An act on a beacon."""

    beacon: str


class BeaconCreated(BeaconAct, verb="beacon.created"):
    """A beacon was added."""

    kind: str
    settings: Mapping[str, Any]


class BeaconChanged(BeaconAct, verb="beacon.changed"):
    """Settings of a beacon were changed."""

    changed: Mapping[str, audit.Change]
    reason: str = ""


class BeaconDeleted(BeaconAct, verb="beacon.deleted"):
    """A beacon was removed."""

    kind: str
    reason: str = ""


class _Beacons(Resource[Beacon]):
    """Beacons: what is theirs beside the kit."""

    def check(self, row: Beacon, given: Given) -> None:
        """Raises FieldError."""
        row.settings = {key: value for key, value in row.settings.items() if value is not None}
        if not row.url.startswith("https://"):
            raise FieldError("url", reasons.of("url_invalid"))
        if unknown := sorted(row.settings.keys() - {"row", "rack"}):
            raise FieldError(f"settings/{unknown[0]}", reasons.of("unknown_field"))


BEACONS = _Beacons(
    model=Beacon,
    noun="beacon",
    verb=Verb.CONFIGURE,
    kinds=tuple(Beacon.Kind.values),
    columns=(
        Text(name="url", label="Address", required=True, most=1000),
        Secret(name="token", label="Token", most=200),
        Number(name="seconds", label="Seconds", required=True, initial=60, most=3600),
        Pairs(name="settings", label="Settings", keys=lambda _kind: ("row", "rack")),
        Flag(name="enabled", label="Enabled"),
    ),
    related=("cluster",),
    has_cluster=True,
    created=BeaconCreated,
    changed=BeaconChanged,
    deleted=BeaconDeleted,
    name_invalid=reasons.of("source_name_invalid"),
    name_taken=lambda name: reasons.of("source_exists", source=name),
)
