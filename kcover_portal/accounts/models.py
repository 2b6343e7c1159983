"""Users, roles, sessions and tokens.

Only the SHA-256 of a token, and of a session's key, is stored: so many random bits do not need a slow hash.
"""

import hashlib
from importlib import import_module
from typing import cast

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover_portal.accounts.verbs import VERBS_OF as VERBS_OF, Role as Role, Verb as Verb
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets
from kcover_portal.fleet.models import Cluster

SESSION_DIGEST_LENGTH = 40  # hexadecimal digits, as long as Django's column


class CustomRole(models.Model):
    """A set of verbs under a name. It is bound to people like a built-in role."""

    name = models.SlugField(max_length=60, unique=True)
    verbs = models.JSONField(default=list)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class User(AbstractUser):
    """A person who can sign in."""

    language = models.CharField(max_length=10, blank=True)
    zone = models.CharField(max_length=60, blank=True)
    home = models.CharField(
        default="",
        db_default="",
        max_length=1100,
        blank=True,
        help_text="the page that / leads to: its name, ? and its query; empty: overview",
    )


class BindingManager(models.Manager["RoleBinding"]):
    """Reads each binding with its custom role, so that reading what many people may do costs one query."""

    def get_queryset(self) -> models.QuerySet["RoleBinding"]:
        """All bindings."""
        return super().get_queryset().select_related("custom")


class RoleBinding(models.Model):
    """A role of a user in one pool of a cluster, in one cluster, or in all clusters if ``cluster`` is null."""

    class Source(models.TextChoices):
        HAND = "hand", _("By hand")
        OIDC = "oidc", _("Single sign-on")

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="bindings")
    role = models.CharField(max_length=60, help_text="a built-in role, or the name of ``custom``")
    custom = models.ForeignKey(CustomRole, on_delete=models.PROTECT, null=True, related_name="bindings")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)
    pool = models.CharField(max_length=120, blank=True, help_text="empty: all pools of the cluster")
    source = models.CharField(max_length=10, choices=Source.choices, default=Source.HAND)

    objects = BindingManager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("user", "cluster", "pool"), condition=models.Q(source="hand"), name="one_role_a_place"
            ),
            models.UniqueConstraint(
                fields=("user",),
                condition=models.Q(source="hand", cluster__isnull=True),
                name="one_role_in_all_clusters",
            ),
            models.CheckConstraint(
                condition=models.Q(pool="") | models.Q(cluster__isnull=False), name="pool_has_a_cluster"
            ),
        )

    @property
    def verbs(self) -> frozenset[str]:
        """The present verbs of the role."""
        return frozenset(self.custom.verbs) if self.custom is not None else VERBS_OF[self.role]

    @property
    def title(self) -> str:
        """The role as people read it."""
        return self.custom.name if self.custom is not None else str(Role(self.role).label)


class GroupMapping(models.Model):
    """The role that members of a group of the identity provider have: in a pool, in a cluster, or in all clusters.

    ``members``: the people whose latest sign-in through the provider had the group.
    """

    group = models.CharField(max_length=255, help_text="as the provider's tokens name it")
    role = models.CharField(max_length=60, help_text="a built-in role, or the name of ``custom``")
    custom = models.ForeignKey(CustomRole, on_delete=models.PROTECT, null=True, related_name="mappings")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)
    pool = models.CharField(max_length=120, blank=True, help_text="empty: all pools of the cluster")
    members = models.ManyToManyField(User, related_name="mappings")

    class Meta:
        ordering = ("group", "cluster__name", "pool")
        constraints = (
            models.UniqueConstraint(fields=("group", "cluster", "pool"), name="one_role_of_a_group_a_place"),
            models.UniqueConstraint(
                fields=("group",), condition=models.Q(cluster__isnull=True), name="one_role_of_a_group_everywhere"
            ),
            models.CheckConstraint(
                condition=models.Q(pool="") | models.Q(cluster__isnull=False), name="mapped_pool_has_a_cluster"
            ),
        )


class Identity(models.Model):
    """A person at an identity provider. Issuer and subject name them: names and e-mail addresses may be reassigned."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    name = models.CharField(max_length=200, blank=True, help_text="for people: a user name or e-mail address")
    created_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="the last sign-in")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("issuer", "subject"), name="one_account_an_identity"),)


class SavedView(models.Model):
    """A query of a list that a person keeps under a name; ``shared``: everybody sees it."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="views")
    listing = models.CharField(max_length=40, help_text="the list's name, as exports have it")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000, help_text="the query string: filters, order and columns")
    shared = models.BooleanField(default=False)
    opens_first = models.BooleanField(default=False, help_text="the list opens with it")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("name", "pk")
        constraints = (
            models.UniqueConstraint(fields=("user", "listing", "name"), name="one_view_a_name"),
            models.UniqueConstraint(
                fields=("user", "listing"), condition=models.Q(opens_first=True), name="one_first_view_a_list"
            ),
        )

    def __str__(self) -> str:
        return self.name


class SharedFirstView(models.Model):
    """A list opens for a person with the shared view of somebody else, in place of a view of their own.

    It ends with the sharing: ``services.saved_views.first_view`` asks whether an active person still shares the view.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="shared_first_views")
    listing = models.CharField(max_length=40, help_text="the list's name, as the view has it")
    view = models.ForeignKey(SavedView, on_delete=models.CASCADE, related_name="first_of")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "listing"), name="one_shared_first_view_a_list"),)

    def __str__(self) -> str:
        return f"{self.listing} of {self.user_id}"


class Session(AbstractBaseSession):
    """A session of a browser. ``services.session_store`` refuses it once it is idle or too old.

    ``session_key`` is the digest of the key that the browser has (``digest_of``): who reads the table opens no session.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="sessions")
    address = models.CharField(max_length=45, blank=True, help_text="where the person signed in")
    browser = models.CharField(max_length=200, blank=True, help_text="the User-Agent header of the sign-in")
    identity = models.ForeignKey(
        Identity, on_delete=models.CASCADE, null=True, related_name="sessions", help_text="of a single sign-on"
    )
    provider_session = models.CharField(max_length=255, blank=True, help_text="the provider's session id (sid)")
    created_at = models.DateTimeField()
    seen_at = models.DateTimeField(help_text="the last request of the person; noted once a minute")

    @classmethod
    def get_session_store_class(cls) -> type[SessionBase]:
        return cast("type[SessionBase]", import_module(settings.SESSION_ENGINE).SessionStore)

    @staticmethod
    def digest_of(key: str) -> str:
        """The ``session_key`` under which the session of a browser's key is stored: 160 bits of its SHA-256."""
        return hashlib.sha256(key.encode()).hexdigest()[:SESSION_DIGEST_LENGTH]

    @property
    def public_id(self) -> str:
        """Names the session on pages and in addresses."""
        return hashlib.sha256(self.session_key.encode()).hexdigest()[:32]


class TotpDevice(ModelWithSecrets):
    """The authenticator app of a person. It exists once the person has given a code of it."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="totp")
    seed = EncryptedTextField(bound_to="user_id")
    last_step = models.BigIntegerField(help_text="the 30-second step of the last code; only later ones are valid")
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)


class Passkey(models.Model):
    """A WebAuthn credential of a person: its public key, and how often it was used."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=80)
    credential = models.CharField(max_length=1400, unique=True, help_text="the credential's id, as base64url")
    public_key = models.BinaryField()
    sign_count = models.BigIntegerField(help_text="the authenticator's counter; 0 if it has none")
    transports = models.JSONField(default=list)
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("pk",)


class RecoveryCode(models.Model):
    """A code that replaces a lost second factor once. Only its SHA-256 is stored: it has 80 random bits."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("user", "digest"), name="one_row_a_recovery_code"),)


class SpentChallenge(models.Model):
    """A WebAuthn challenge that was answered. A second answer is refused until the challenge has expired."""

    digest = models.CharField(max_length=64, primary_key=True)
    expires_at = models.DateTimeField(db_index=True)


class Invitation(models.Model):
    """A link by which a person chooses the first password of their account. Only the SHA-256 of its token is stored."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="invitations")
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="accepted, or replaced by a later invitation")


class AttemptCounter(models.Model):
    """Failed password attempts of one account, address or browser. See ``services.throttle``."""

    key = models.CharField(max_length=64, primary_key=True, help_text="a keyed hash; names and addresses are not kept")
    kind = models.CharField(max_length=10)
    failures = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(help_text="attempts before this time are refused")
    last_at = models.DateTimeField(db_index=True)


class FailedAttempts(models.Model):
    """Failures of one account and address since their last entry in the audit log."""

    verb = models.CharField(max_length=60)
    user = models.CharField(max_length=150, blank=True)
    address = models.CharField(max_length=45, blank=True)
    count = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)
    recorded_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("verb", "user", "address"), name="one_row_of_failures"),)


class ApiToken(models.Model):
    """A credential for a program. An agent token with ``node`` is that of the node's agent; without, it only enrols."""

    class Kind(models.TextChoices):
        AGENT = "agent", _("Agent")
        DECISION = "decision", _("Decision system")
        OPERATOR = "operator", _("Operator")
        VIEWER = "viewer", _("Viewer")
        SOURCE = "source", _("Source of faults")
        WALL = "wall", _("Wallboard")

    SEEING = (Kind.AGENT, Kind.SOURCE)  # without them faults of nodes are not seen

    class Origin(models.TextChoices):
        GIVEN = "given"
        ENROLMENT = "enrolment"
        ACCOUNT = "account"
        RENEWAL = "renewal"

    kind = models.CharField(max_length=10, choices=Kind.choices)
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.GIVEN)
    name = models.CharField(max_length=120, blank=True)
    digest = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens")
    node = models.CharField(max_length=253, blank=True)
    source = models.CharField(max_length=120, blank=True, help_text="of a source's token: the only source it can feed")
    scopes = models.JSONField(default=list, blank=True)
    verbs = models.JSONField(default=list, blank=True, help_text="narrows the kind's verbs; empty: all of them")
    networks = models.JSONField(default=list, blank=True, help_text="CIDR networks it may be used from; empty: any")
    owner = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        related_name="tokens",
        help_text="who counts as the requester of its acts; none for credentials of nodes and tokens of the shell",
    )
    created_by = models.CharField(max_length=200, blank=True)
    parent = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        related_name="children",
        help_text="the enrolment token, or the credential that was renewed",
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_used_from = models.CharField(max_length=45, blank=True, help_text="the client's address then")
    replaced_by = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, related_name="replaces", help_text="the token of its rotation"
    )

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("cluster", "node"), name="tokens_of_node"),
            models.Index(fields=("revoked_at",), condition=models.Q(revoked_at__isnull=False), name="tokens_revoked"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.prefix}…"
