"""Users, roles and tokens. Only the SHA-256 of a token is stored: 256 random bits do not need a slow hash."""

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover_portal.fleet.models import Cluster


class Role(models.TextChoices):
    """What a user may do. Each role includes the ones before it."""

    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    APPROVER = "approver", _("Approver")
    ADMIN = "admin", _("Admin")


class User(AbstractUser):
    """A person who can sign in."""

    language = models.CharField(max_length=10, blank=True)
    zone = models.CharField(max_length=60, blank=True)


class RoleBinding(models.Model):
    """A user's role in one cluster, or in all clusters if ``cluster`` is null."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="bindings")
    role = models.CharField(max_length=10, choices=Role.choices)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("user", "cluster"), name="one_role_a_cluster"),
            models.UniqueConstraint(
                fields=("user",), condition=models.Q(cluster__isnull=True), name="one_role_everywhere"
            ),
        )


class ApiToken(models.Model):
    """A credential for a program.

    An agent token with ``node`` is the credential of that node's agent. Without ``node`` it can only enrol agents.
    """

    class Kind(models.TextChoices):
        AGENT = "agent", _("Agent")
        DECISION = "decision", _("Decision system")
        OPERATOR = "operator", _("Operator")
        VIEWER = "viewer", _("Viewer")

    kind = models.CharField(max_length=10, choices=Kind.choices)
    name = models.CharField(max_length=120, blank=True)
    digest = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens")
    node = models.CharField(max_length=253, blank=True)
    scopes = models.JSONField(default=list, blank=True)
    created_by = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("cluster", "node"), name="tokens_of_node"),
            models.Index(fields=("revoked_at",), condition=models.Q(revoked_at__isnull=False), name="tokens_revoked"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.prefix}…"
