"""Clusters, nodes, GPUs, agents, check results and commands to agents."""

import uuid

from django.core.validators import MaxLengthValidator, MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover import reasons
from kcover.nodes import scopes
from kcover.validation import profiles
from kcover_portal.encryption import EncryptedTextField, ModelWithSecrets
from kcover_portal.runtime.models import Mode

# The name of a Kubernetes object: a DNS subdomain (RFC 1123).
OBJECT_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z"
ALL_NAMESPACES = "*"
MAX_NCCL_EVERY = 24 * 30  # hours
# busybox 1.36.1 for all architectures. By its digest, because this image runs as root on nodes.
JOB_IMAGE = "docker.io/library/busybox:1.36@sha256:73aaf090f3d85aa34ee199857f03fa3a95c8ede2ffd4cc2cdb5b94e566b11662"


class Cluster(ModelWithSecrets):
    """A Kubernetes cluster and how the portal may act on it."""

    class Reboot(models.TextChoices):
        AUTO = "auto", _("Agent if one reports, otherwise job")
        AGENT = "agent", _("Agent")
        JOB = "job", _("Kubernetes Job")

    class DecisionMode(models.TextChoices):
        POLICIES = "policies", _("Policies")
        EXTERNAL = "external", _("External system")
        BOTH = "both", _("Both")

    class Fallback(models.TextChoices):
        POLICIES = "policies", _("Policies")
        HOLD = "hold", _("Hold for an operator")

    class Drills(models.TextChoices):
        ACT = "act", _("Act")
        RECORD = "record", _("Record only")

    class HandApproval(models.TextChoices):
        MODE = "mode", _("In approve mode")
        ALWAYS = "always", _("Always")
        NEVER = "never", _("Never")

    class OnDrainTimeout(models.TextChoices):
        HOLD = "hold", _("Hold and escalate to an operator.")
        PROCEED = "proceed", _("Continue without the remaining pods.")
        FORCE = "force", _("Delete the remaining pods by force.")

    class SecondFactor(models.TextChoices):
        OFF = "off", _("As required globally")
        APPROVERS = "approvers", _("People who may approve")
        ALL = "all", _("Everybody with a role")

    class JobRecovery(models.TextChoices):
        OFF = "off", _("Off")
        SHADOW = "shadow", _("Shadow")
        APPROVE = "approve", pgettext_lazy("mode", "Approve")
        ENFORCE = "enforce", _("Enforce")

    class BurnIn(models.TextChoices):
        OFF = "off", _("Off")
        TAINTED = "tainted", _("Nodes with the readiness taint")
        NEW = "new", _("Also new machines without the taint")

    name = models.SlugField(max_length=100, unique=True)
    kubeconfig = EncryptedTextField(bound_to="name", blank=True, engine_only=True)
    read_kubeconfig = EncryptedTextField(
        default="",
        db_default="",
        bound_to="name",
        blank=True,
        help_text="with fewer rights, for web and live; empty: they use the other one",
    )
    context = models.CharField(max_length=253, blank=True)
    in_cluster = models.BooleanField(default=False)
    mode = models.CharField(max_length=10, choices=Mode.choices, default=Mode.ENFORCE)
    resumes_as = models.CharField(max_length=10, choices=Mode.choices, blank=True, help_text="the mode before a pause")
    pause_reason = models.CharField(max_length=500, blank=True)
    acted_on_by = models.CharField(
        max_length=120, blank=True, help_text="another system that acts on the nodes: the portal then runs in shadow"
    )
    decision_mode = models.CharField(max_length=10, choices=DecisionMode.choices, default=DecisionMode.BOTH)
    drills = models.CharField(max_length=10, choices=Drills.choices, default=Drills.ACT)
    reboot = models.CharField(max_length=10, choices=Reboot.choices, default=Reboot.AUTO)
    hand_approval = models.CharField(
        max_length=10,
        choices=HandApproval.choices,
        default=HandApproval.MODE,
        help_text="when actions by hand that take work away need another person's approval",
    )
    isolate_before_approval = models.BooleanField(
        default=True,
        db_default=True,
        help_text="in approve mode, nodes are isolated before a person is asked",
    )
    on_drain_timeout = models.CharField(
        max_length=10,
        choices=OnDrainTimeout.choices,
        default=OnDrainTimeout.HOLD,
        db_default="hold",
        help_text="what follows when a drain has run out of time, for rules that do not say",
    )
    second_admin = models.BooleanField(default=False, help_text="another admin must confirm what loosens a limit")
    second_factor = models.CharField(
        max_length=10,
        choices=SecondFactor.choices,
        default=SecondFactor.OFF,
        help_text="which people with a role there need a second factor, besides KCOVER_SECOND_FACTOR",
    )
    job_image = models.CharField(max_length=300, default=JOB_IMAGE)
    job_namespace = models.CharField(max_length=63, default="kcover-jobs")
    event_namespace = models.CharField(max_length=63, default="kce-rescue-system")
    hold_down = models.PositiveIntegerField(default=30, help_text="seconds without a fault before a node is healthy")
    guards = models.JSONField(
        default=dict, help_text="settings that differ from the guards' defaults (kcover.decisions.guards)"
    )
    decision_url = models.URLField(max_length=500, blank=True, help_text="URL of the external decision system")
    decision_secret = EncryptedTextField(
        bound_to="name",
        blank=True,
        validators=(MaxLengthValidator(200),),
        help_text="signs its requests and responses",
    )
    decision_secret_before = EncryptedTextField(
        bound_to="name", blank=True, help_text="the previous secret, with which callbacks may still be signed"
    )
    decision_secret_before_until = models.DateTimeField(null=True, help_text="when the previous secret ends")
    decision_timeout = models.PositiveSmallIntegerField(default=5, help_text="seconds to wait for its response")
    decision_fallback = models.CharField(
        max_length=10,
        choices=Fallback.choices,
        default=Fallback.POLICIES,
        help_text="who decides if it is silent",
    )
    ready_within = models.PositiveIntegerField(default=1800, help_text="seconds a reboot may take")
    autopilot_labels = models.BooleanField(default=False, help_text="nodes carry Autopilot's labels")
    preflight_within = models.PositiveIntegerField(
        default=1800, help_text="seconds from a job's first preflight report to its last"
    )
    preflight_namespaces = models.CharField(
        max_length=2000,
        blank=True,
        help_text="namespaces whose PreflightReport objects count, separated by commas; *: all",
    )
    preflight_labels = models.BooleanField(
        db_default=False, default=False, help_text="nodes carry the preflight gate as a label"
    )
    nccl_image = models.CharField(
        default="",
        db_default="",
        max_length=300,
        blank=True,
        help_text="image with PyTorch for pair tests of preflight; empty: no such tests",
    )
    nccl_namespace = models.CharField(
        db_default="kcover-preflight", max_length=63, default="kcover-preflight", help_text="of the Jobs of pair tests"
    )
    nccl_resources = models.CharField(
        default="",
        db_default="",
        max_length=500,
        blank=True,
        help_text="further resources of these Jobs, such as rdma/hca=1, separated by commas",
    )
    nccl_every = models.PositiveSmallIntegerField(
        db_default=0,
        default=0,
        validators=(MaxValueValidator(MAX_NCCL_EVERY),),
        help_text="hours between pair tests of the idle nodes; 0: none on a schedule",
    )
    standby_tested = models.BooleanField(
        db_default=False, default=False, help_text="a standby is free only while its preflight gate is passed"
    )
    storage_class = models.CharField(
        max_length=253,
        blank=True,
        validators=(RegexValidator(OBJECT_NAME, "Must be the name of a storage class (a-z, 0-9, '-' and '.')."),),
        help_text="storage class of the check pvc; empty: the cluster's default",
    )
    action_lease = models.BooleanField(
        db_default=False,
        default=False,
        help_text="the portal acts only while it holds a Lease of the cluster; otherwise it is in shadow",
    )
    acts_until = models.DateTimeField(null=True, help_text="with action_lease: until then no other portal acts")
    lease_holder = models.CharField(
        default="", db_default="", max_length=253, blank=True, help_text="who holds that Lease, as last seen"
    )
    ledger_lease = models.BooleanField(
        default=False, help_text="signed heads of the audit log are kept in a Lease of the cluster"
    )
    unread_objects = models.JSONField(
        default=dict, db_default={}, help_text="why objects of a kind are left out, by kind; {}: all are read"
    )
    job_recovery = models.CharField(
        max_length=10,
        choices=JobRecovery.choices,
        default=JobRecovery.ENFORCE,
        help_text="how failed training jobs are restarted; the strictest of this and the modes holds",
    )
    topology = models.JSONField(
        default=dict, blank=True, help_text="label keys that name a node's rack, leaf, nvlink domain and pool"
    )
    burn_in = models.CharField(
        db_default="off",
        max_length=10,
        choices=BurnIn.choices,
        default=BurnIn.OFF,
        help_text="which nodes are validated before their first work",
    )
    burn_in_profile = models.CharField(
        db_default="burn-in",
        max_length=20,
        choices=tuple((name, name) for name in profiles.DEFAULTS),
        default=profiles.BURN_IN,
        help_text="profile of these validations",
    )
    burn_in_new_since = models.DateTimeField(null=True, help_text="when burn_in became new: older machines are not new")
    lemon_repairs = models.BooleanField(
        db_default=False, default=False, help_text="the portal reports a repair of a node that fails again and again"
    )
    gpu_hour_price = models.DecimalField(
        max_digits=10,
        decimal_places=4,
        null=True,
        blank=True,
        validators=(MinValueValidator(0),),
        help_text="what an hour of one GPU costs, for reports; null: not known",
    )
    created_at = models.DateTimeField()
    decision_change = models.CharField(
        max_length=32, blank=True, help_text="id of the last change that affects decisions in this cluster"
    )
    reachable_since = models.DateTimeField(null=True, help_text="end of its API server's last period of silence")
    watched_at = models.DateTimeField(null=True, help_text="when the cluster last answered the watch")
    watch_error = models.JSONField(default=dict, blank=True, help_text="the Reason why the watch fails; {}: it works")
    version = models.CharField(max_length=40, blank=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def nccl_resource_counts(self) -> dict[str, int]:
        """``nccl_resources`` as numbers by name."""
        pairs = (one.partition("=") for one in self.nccl_resources.split(",") if one)
        return {name: int(count) for name, _, count in pairs}

    @property
    def preflight_namespace_list(self) -> list[str]:
        """The namespaces whose PreflightReport objects count; ``[ALL_NAMESPACES]``: all."""
        return self.preflight_namespaces.split(",") if self.preflight_namespaces else []

    @property
    def watch_failure(self) -> reasons.Reason | None:
        """The reason why the watch fails; None while it works."""
        return reasons.kept(self.watch_error)


class PendingChange(ModelWithSecrets):
    """A change that loosens a limit, in a cluster or (null) in all, and waits for another admin."""

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        CONFIRMED = "confirmed", _("Confirmed")
        REJECTED = "rejected", _("Rejected")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="pending_changes")
    kind = models.CharField(max_length=10, help_text="guards, settings or resume")
    changes = models.JSONField(help_text="the patch that was requested; a secret in it is only marked as changed")
    secret = EncryptedTextField(
        bound_to="cluster_id", blank=True, default="", db_default="", help_text="the secret, until the change is closed"
    )
    before = models.JSONField(help_text="what it changes, as it was at the request")
    requested_by = models.CharField(max_length=200)
    requesters = models.JSONField(default=list, help_text="the people who count as the requester")
    reason = models.CharField(max_length=500, blank=True)
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    answered_by = models.CharField(max_length=200, blank=True)
    answered_at = models.DateTimeField(null=True)


class Maintenance(models.Model):
    """A window in which the portal isolates and reboots nothing, in all clusters, a cluster or some of its nodes.

    The scope lives: a node that joins it later is covered. ``members`` stay covered whatever becomes of their labels,
    because people work on them.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="maintenance")
    pool = models.CharField(max_length=120, blank=True)
    node = models.CharField(max_length=253, blank=True)
    selection = models.JSONField(db_default={}, default=dict, help_text="a scope, if it is no single pool or node")
    members = models.JSONField(
        db_default=[], default=list, help_text="names of the nodes that the selection had at first"
    )
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=500)
    created_by = models.CharField(max_length=200)
    series = models.UUIDField(null=True, db_index=True, help_text="of a window that repeats: the same for all its rows")
    left: int  # of a series: how many windows follow; set by those who list windows
    repeats = models.JSONField(db_default={}, default=dict, help_text="the rule by which it repeats; {}: it does not")

    class Meta:
        ordering = ("starts_at", "pk")
        constraints = (
            models.CheckConstraint(condition=models.Q(ends_at__gt=models.F("starts_at")), name="window_has_a_length"),
        )

    @cached_property
    def scope(self) -> scopes.Scope:
        """The nodes of the cluster that are selected."""
        if self.selection:
            return scopes.parse(self.selection)
        return scopes.Scope(nodes=(self.node,) if self.node else (), pools=(self.pool,) if self.pool else ())

    @cached_property
    def _names(self) -> frozenset[str]:
        """The nodes that are covered by name: a set, because windows and clusters may have thousands of nodes."""
        return frozenset((*self.members, *self.scope.nodes))

    def covers(self, node: "Node") -> bool:
        """Returns whether the window is for this node: the one definition for guards, checks and pages."""
        if self.cluster_id not in (None, node.cluster_id):
            return False
        if self.scope.kind == "nodes" or node.name in self._names:
            return node.name in self._names
        setting = self.cluster.topology if self.cluster is not None else {}
        return self.scope.covers(name=node.name, pool=node.pool, labels=node.labels, setting=setting)


class Node(models.Model):
    """A node as last seen by the watch, or one that only an agent has reported (``in_cluster`` false)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64, blank=True)
    in_cluster = models.BooleanField(default=False, help_text="true if the cluster lists the node")
    pool = models.CharField(max_length=120, blank=True)
    model = models.CharField(max_length=120, blank=True)
    labels = models.JSONField(default=dict)
    taints = models.JSONField(default=list)
    conditions = models.JSONField(default=dict)
    marks = models.JSONField(default=dict, help_text="the kcover.io/rescue annotation, parsed")
    unschedulable = models.BooleanField(default=False)
    ready = models.BooleanField(default=False)
    ready_since = models.DateTimeField(null=True)
    unready_since = models.DateTimeField(null=True, help_text="when it was first seen not Ready; null: it is Ready")
    boot_id = models.CharField(max_length=64, blank=True)
    past_boots = models.JSONField(default=list, help_text="ids of earlier boots, the latest first")
    boot_times = models.JSONField(
        default=dict, db_default={}, help_text="when the watch first showed each boot, by its id; not that of the first"
    )
    system_uuid = models.CharField(
        default="", db_default="", max_length=64, blank=True, help_text="SMBIOS UUID of its machine"
    )
    provider_id = models.CharField(
        default="", db_default="", max_length=500, blank=True, help_text="name of its machine in a cloud"
    )
    machine_since = models.DateTimeField(null=True, help_text="first seen with this machine; null: from the start")
    machine_after = models.DateTimeField(
        null=True, help_text="the last look at the cluster before this machine was seen; null: there was none"
    )
    restated = models.JSONField(
        default=dict,
        db_default={},
        help_text="names of its machine that the node changed since it joined, as they were; {}: none, or confirmed",
    )
    not_ready_since = models.DateTimeField(null=True, help_text="when it got the readiness taint; null: it has none")
    gpus = models.PositiveIntegerField(default=0, help_text="GPU capacity reported by the device plugin")
    unallocatable = models.PositiveIntegerField(
        default=0, db_default=0, help_text="GPUs of the capacity that pods cannot get"
    )
    unallocatable_since = models.DateTimeField(null=True, help_text="since when there are such GPUs; null: none")
    runtime = models.CharField(default="", db_default="", max_length=40, blank=True, help_text="container runtime")
    kubelet = models.CharField(max_length=60, blank=True)
    address = models.CharField(max_length=64, blank=True)
    addresses = models.JSONField(
        default=list,
        db_default=[],
        help_text="all addresses and host names of it, in the spelling of kcover.sources.hosts",
    )
    driver = models.CharField(max_length=60, blank=True)
    kernel = models.CharField(max_length=120, blank=True)
    created_at = models.DateTimeField()
    synced_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True, help_text="when the node disappeared from the cluster")
    locked_by = models.CharField(max_length=60, blank=True, help_text="holder of the node lock, if not its own rescue")
    locked_until = models.DateTimeField(null=True, help_text="when that lock expires")
    probation_until = models.DateTimeField(null=True, help_text="end of its probation; null: it is on none")

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="one_node_a_name"),)
        indexes = (
            models.Index(fields=("cluster", "pool"), name="nodes_of_pool"),
            models.Index(
                fields=("probation_until",),
                condition=models.Q(probation_until__isnull=False),
                name="nodes_on_probation",
            ),
            models.Index(
                fields=("not_ready_since",),
                condition=models.Q(not_ready_since__isnull=False),
                name="nodes_not_ready_for_work",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Agent(models.Model):
    """The last report of a node's agent. The row is narrow, because every heartbeat updates it.

    There is no index besides the primary key, so that PostgreSQL can use HOT updates.
    """

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="agent")
    seen_at = models.DateTimeField()
    boot_id = models.CharField(max_length=64)
    boot_seen_at = models.DateTimeField(help_text="first report with this boot id")
    version = models.CharField(max_length=40, blank=True)
    skew = models.FloatField(default=0, help_text="seconds the agent's clock is ahead of ours")
    recent = models.CharField(max_length=96, blank=True, help_text="hashes of the last batch ids, to recognize repeats")
    inventory_digest = models.CharField(max_length=16, blank=True, help_text="digest of the last report's inventory")
    checks_digest = models.CharField(max_length=16, blank=True, help_text="digest of the last report's check results")


class Gpu(models.Model):
    """A GPU of a node's last inventory."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    index = models.PositiveSmallIntegerField()
    uuid = models.CharField(max_length=96)
    pci = models.CharField(max_length=32, blank=True)
    model = models.CharField(max_length=120, blank=True)
    serial = models.CharField(max_length=60, blank=True)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ("node_id", "index")
        constraints = (models.UniqueConstraint(fields=("node", "uuid"), name="one_gpu_a_uuid"),)

    def __str__(self) -> str:
        return self.uuid


class Hardware(models.Model):
    """The serial numbers of a node's last inventory, beside those of its GPUs; "" if unknown.

    A change sets ``unrecorded``, until the app ``parts`` has recorded where the parts are.
    """

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="hardware")
    machine_serial = models.CharField(max_length=64, blank=True)
    board_serial = models.CharField(max_length=64, blank=True)
    nics = models.JSONField(default=list, help_text="network adapters: serial, name, pci, model")
    changed_at = models.DateTimeField(help_text="when the inventory last changed")
    unrecorded = models.BooleanField(default=True)

    class Meta:
        indexes = (models.Index(fields=("node",), condition=models.Q(unrecorded=True), name="unrecorded_hardware"),)


class CheckResult(models.Model):
    """The latest result of one check on one device."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="checks")
    name = models.CharField(max_length=64)
    device = models.CharField(max_length=128, blank=True)
    status = models.CharField(max_length=10)
    value = models.FloatField(null=True)
    unit = models.CharField(max_length=32, blank=True)
    message = models.CharField(max_length=1000, blank=True)
    seen_at = models.DateTimeField()
    changed_at = models.DateTimeField(help_text="when the status last changed")

    class Meta:
        ordering = ("node_id", "name", "device")
        constraints = (models.UniqueConstraint(fields=("node", "name", "device"), name="one_result_a_check"),)


class GpuSample(models.Model):
    """What the GPUs of a node reported in a quarter of an hour. A ring: ``slot`` is used again after three days."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpu_samples")
    slot = models.PositiveSmallIntegerField()
    at = models.DateTimeField(help_text="the start of the quarter of an hour")
    figures = models.JSONField(help_text="values by GPU (UUID) and name of the check")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("node", "slot"), name="one_sample_a_slot"),)


class ForeignCordon(models.Model):
    """A time in which somebody other than the portal had a node cordoned; ``ended_at`` null: it lasts."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="foreign_cordons")
    began_at = models.DateTimeField(help_text="when the portal first saw it")
    ended_at = models.DateTimeField(null=True, help_text="when the portal first saw its end")

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("node",), condition=models.Q(ended_at=None), name="one_open_foreign_cordon_a_node"
            ),
        )
        indexes = (models.Index(fields=("node", "-began_at"), name="foreign_cordons_of_node"),)

    def __str__(self) -> str:
        return f"cordon of {self.node_id} since {self.began_at}"


class CheckChange(models.Model):
    """A change of a check's status; kept as long as occurrences."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="check_changes")
    name = models.CharField(max_length=64)
    device = models.CharField(max_length=128, blank=True)
    before = models.CharField(max_length=10, blank=True, help_text="empty for the first result")
    status = models.CharField(max_length=10)
    message = models.CharField(max_length=1000, blank=True)
    at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("node", "-id"), name="check_changes_of_node"),)


class Command(models.Model):
    """A command to a node's agent. It is offered until its result arrives, and executed at most once by its id."""

    class Requester(models.TextChoices):
        RESCUE = "rescue", _("Rescue")
        CHECK_RUN = "check_run", _("Check run")

    class State(models.TextChoices):
        OFFERED = "offered", _("Offered")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")
        REFUSED = "refused", _("Refused")
        EXPIRED = "expired", _("Expired")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="commands")
    key = models.CharField(
        max_length=100, unique=True, help_text="key of the request; repeating it returns this command"
    )
    requester_kind = models.CharField(max_length=20, choices=Requester.choices, blank=True)
    requester_id = models.PositiveBigIntegerField(null=True, help_text="id of the rescue or check run")
    requester_step = models.PositiveIntegerField(null=True, help_text="for a rescue: the index of its step")
    kind = models.CharField(max_length=20)
    args = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OFFERED)
    message = models.CharField(max_length=1000, blank=True, help_text="of the agent")
    because = models.JSONField(
        default=dict, help_text="a Reason: why the portal closed it, and what the agent answered after that; {}: none"
    )
    output = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (
            models.Index(fields=("node",), condition=models.Q(state="offered"), name="commands_on_offer"),
            models.Index(fields=("requester_kind", "requester_id"), name="commands_of_requester"),
        )
