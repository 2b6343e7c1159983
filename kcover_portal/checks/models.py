"""Check runs and the nodes that they check; validations and their profiles."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.preflight.models import PairPlan
from kcover_portal.rescue.models import Rescue


class CheckRun(models.Model):
    """Checks requested on many nodes of a cluster, batch by batch. A run continues whether or not a client waits."""

    class State(models.TextChoices):
        RUNNING = "running", _("Running")
        FINISHED = "finished", _("Finished")
        STOPPED = "stopped", _("Stopped")

    class Requester(models.TextChoices):
        PERSON = "person"
        TOKEN = "token"
        SCHEDULE = "schedule"
        JOB = "job"
        RESCUE = "rescue"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="check_runs")
    checks = models.JSONField(default=list, help_text="names, in running order")
    level = models.PositiveSmallIntegerField(default=1, help_text="of dcgm, 1 to 4")
    limits = models.JSONField(default=dict, help_text="limits that replace the agents' own, such as pciebw's threshold")
    peers = models.JSONField(default=list, help_text="addresses that every node pings; empty: its neighbours")
    batch = models.PositiveIntegerField(default=0, help_text="nodes at a time; 0: all at once")
    total = models.PositiveIntegerField(default=0, help_text="nodes")
    done = models.PositiveIntegerField(default=0, help_text="nodes that are finished")
    wrong = models.PositiveIntegerField(default=0, help_text="finished nodes with a failure or without an answer")
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    storage = models.JSONField(default=dict, help_text="state and result of the check pvc, the same for every node")
    ring = models.JSONField(default=dict, help_text="iperf's ring: traffic, members, current step")
    busy_until = models.DateTimeField(null=True, help_text="lease of the worker that calls the cluster")
    requested_by = models.CharField(max_length=200)
    requester_kind = models.CharField(max_length=10, choices=Requester.choices, default=Requester.PERSON)
    requested_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("id",), condition=models.Q(state="running"), name="check_runs_going_on"),)

    def __str__(self) -> str:
        return f"check run {self.pk}"


class WatchedJob(models.Model):
    """A training job whose owner asks for checks of its nodes after its end (``kcover.io/check-after``)."""

    class State(models.TextChoices):
        WATCHED = "watched", _("Running")
        ENDED = "ended", _("Waiting")
        REQUESTED = "requested", _("Done")
        DECLINED = "declined", _("Dropped")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="watched_jobs")
    namespace = models.CharField(max_length=63)
    kind = models.CharField(max_length=32)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    profile = models.CharField(max_length=16, help_text="the value of the annotation")
    nodes = models.JSONField(default=list, help_text="names of the nodes on which its pods ran")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WATCHED)
    because = models.JSONField(default=dict, help_text="a Reason: why no checks were requested; {}: they were")
    run = models.OneToOneField(CheckRun, on_delete=models.SET_NULL, null=True, related_name="after_job")
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("cluster", "uid"), name="one_row_a_watched_job"),)
        indexes = (
            models.Index(
                fields=("cluster", "state"),
                condition=models.Q(state__in=("watched", "ended")),
                name="open_watched_jobs",
            ),
            models.Index(fields=("cluster", "namespace", "ended_at"), name="watched_jobs_of_namespace"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class CheckTarget(models.Model):
    """One node of a check run: the requested checks, and its results."""

    class State(models.TextChoices):
        WAITING = "waiting", _("Waiting")
        REQUESTED = "requested", _("Running")
        DONE = "done", _("Done")
        SILENT = "silent", _("No answer")
        STOPPED = "stopped", _("Stopped")

    run = models.ForeignKey(CheckRun, on_delete=models.CASCADE, related_name="targets")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="check_targets")
    place = models.PositiveIntegerField()
    batch = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    command = models.OneToOneField(Command, on_delete=models.SET_NULL, null=True, related_name="check_target")
    invasive = models.BooleanField(default=False, help_text="a check that needs idle GPUs was requested")
    results = models.JSONField(default=list)
    statuses = models.JSONField(default=list, help_text="Autopilot's status words")
    note = models.JSONField(default=dict, help_text="a Reason: why there are no results; {}: there are")
    requested_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    label_before = models.CharField(max_length=63, blank=True, help_text="gpuhealth label before TESTING")
    labelled_at = models.DateTimeField(null=True, help_text="when its result was written to the node's labels")

    class Meta:
        ordering = ("run_id", "place")
        constraints = (
            models.UniqueConstraint(fields=("run", "place"), name="one_target_a_place"),
            models.UniqueConstraint(
                fields=("node",),
                condition=models.Q(state="requested", invasive=True),
                name="one_invasive_target_a_node",
            ),
        )
        indexes = (
            models.Index(fields=("run", "finished_at"), name="check_targets_finished"),
            models.Index(
                fields=("node",),
                condition=models.Q(invasive=True, labelled_at=None),
                name="check_targets_to_label",
            ),
        )


class ValidationProfile(models.Model):
    """A validation profile that an admin has changed. The others are as ``kcover.validation.profiles`` has them."""

    name = models.CharField(max_length=16, unique=True)
    document = models.JSONField(help_text="checks and probes, as kcover.validation.profiles reads them")
    changed_by = models.CharField(max_length=200)
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Validation(models.Model):
    """A check run whose results prove that nodes are healthy, or do not. It waits while too many runs are running."""

    class State(models.TextChoices):
        WAITING = "waiting", _("Waiting")
        RUNNING = "running", _("Running")
        PASSED = "passed", _("Passed")
        FAILED = "failed", _("Failed")
        ERROR = "error", _("Not proven")
        CANCELLED = "cancelled", _("Cancelled")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="validations")
    profile = models.CharField(max_length=16)
    document = models.JSONField(help_text="the profile as it was when the validation was requested")
    reason = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    run = models.OneToOneField(CheckRun, on_delete=models.CASCADE, null=True, related_name="validation")
    nccl_plan = models.OneToOneField(PairPlan, on_delete=models.SET_NULL, null=True, related_name="validation")
    requested_by = models.CharField(max_length=200)
    requester_kind = models.CharField(
        max_length=10, choices=CheckRun.Requester.choices, default=CheckRun.Requester.PERSON
    )
    rescue = models.ForeignKey(Rescue, on_delete=models.SET_NULL, null=True, related_name="validations")
    key = models.CharField(max_length=80, null=True, unique=True, help_text="of the rescue's step and attempt")
    requested_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(
                fields=("cluster",), condition=models.Q(state__in=("waiting", "running")), name="open_validations"
            ),
        )

    def __str__(self) -> str:
        return f"validation {self.pk}"


class ValidatedNode(models.Model):
    """One node of a validation, and what the results of its checks and probes prove. It waits until the verdict."""

    validation = models.ForeignKey(Validation, on_delete=models.CASCADE, related_name="nodes")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="validated")
    machine = models.CharField(max_length=64, blank=True, help_text="uid of the node when it was validated")
    serial = models.CharField(
        default="",
        db_default="",
        max_length=64,
        blank=True,
        help_text="serial number of the machine when it was requested; empty: unknown",
    )
    state = models.CharField(max_length=10, choices=Validation.State.choices, default=Validation.State.WAITING)
    proof = models.CharField(max_length=10, default="none", help_text="hardware, or none: nothing was measured")
    because = models.JSONField(default=list, help_text="Reasons why the node did not pass")
    probes = models.JSONField(default=list, help_text="the results of the profile's probes at the verdict")
    nccl = models.JSONField(db_default=[], default=list, help_text="the results of its NCCL tests at the verdict")

    class Meta:
        ordering = ("validation_id", "node__name")
        constraints = (models.UniqueConstraint(fields=("validation", "node"), name="one_verdict_a_node"),)
        indexes = (models.Index(fields=("node", "-id"), name="validations_of_node"),)

    def __str__(self) -> str:
        return f"{self.node} in {self.validation}"

    @property
    def reasons(self) -> tuple[reasons.Reason, ...]:
        """Why the node did not pass; empty if it did, and before the verdict."""
        return tuple(reasons.from_json(stored) for stored in self.because)
