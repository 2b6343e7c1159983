"""Machine drivers."""

import json
from typing import Any, Final

from django.db import models

from kcover.machines import machine_drivers
from kcover.values import masked_addresses
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets
from kcover_portal.fleet.models import Cluster

RECEIVING: Final = ("table", "hosts", "insecure")  # settings that decide which servers get the password


class Driver(ModelWithSecrets):
    """The way to the controllers of a cluster's machines. Its password is never shown again."""

    class Kind(models.TextChoices):
        REDFISH = "redfish", "Redfish"
        IPMI = "ipmi", "IPMI"
        WEBHOOK = "webhook", "Webhook"
        NVSENTINEL = "nvsentinel", "NVSentinel"
        CLUSTERAPI = "clusterapi", "Cluster API"
        KARPENTER = "karpenter", "Karpenter"

    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drivers")
    url = models.CharField(max_length=1000, blank=True, help_text="with the places {node} and {bmc}")
    username = models.CharField(max_length=200, blank=True)
    password = EncryptedTextField(
        bound_to="name", engine_only=True, sent_to="receivers", blank=True, help_text="at most 200 characters"
    )
    settings = models.JSONField(default=dict)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("cluster__name", "name")

    def __str__(self) -> str:
        return self.name

    @property
    def shown_url(self) -> str:
        """The address without secrets."""
        return masked_addresses.mask_text(self.url)

    @property
    def receivers(self) -> str:
        """What decides which servers get the password, and whether they prove who they are."""
        return json.dumps([self.url, *(self.setting(name) for name in RECEIVING)], sort_keys=True)

    def setting(self, name: str) -> Any:
        """The value of a setting, or its default."""
        return machine_drivers.setting(self.settings, name)
