"""Which fields of which models are in the file. A test fails until a new field has its place here.

A model is a ``Table`` of what is in the file, what is there only with the secrets, and what is left out with the
reason; or the reason why none of its rows are in the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

RECORD: Final = "a record of what happened, or the state of work; database backup keeps it"
SEEN: Final = "what the portal sees by itself"
KEY: Final = "a key of the database; the file names objects"
ENTRY: Final = "who did it and when is in the audit log; an import is by whoever runs it"
OWN: Final = "a person sets it again with a click"


@dataclass(frozen=True, kw_only=True)
class Table:
    """The fields of a model. ``left``: the reason by field."""

    plain: frozenset[str] = frozenset()
    secret: frozenset[str] = frozenset()
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> frozenset[str]:
        """All of them."""
        return self.plain | self.secret | frozenset(self.left)


def _of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROW: Final = {"id": KEY, "created_by": ENTRY, "created_at": ENTRY}

MODELS: Final[Mapping[str, Table | str]] = {
    "runtime.Installation": Table(
        plain=_of("mode"),
        left={
            "id": KEY,
            **dict.fromkeys(("resumes_as", "reason", "changed_by", "changed_at"), "belongs to one pause"),
            "decision_change": RECORD,
            "first_choice_dismissed_at": OWN,
        },
    ),
    "fleet.Cluster": Table(
        plain=_of(
            "name context in_cluster mode acted_on_by decision_mode drills reboot hand_approval isolate_before_approval"
            " on_drain_timeout second_admin second_factor job_image job_namespace event_namespace hold_down guards"
            " decision_url decision_timeout decision_fallback ready_within autopilot_labels preflight_within"
            " preflight_namespaces preflight_labels nccl_image nccl_namespace nccl_resources nccl_every standby_tested"
            " storage_class action_lease ledger_lease job_recovery topology burn_in burn_in_profile lemon_repairs"
            " gpu_hour_price"
        ),
        secret=_of("kubeconfig read_kubeconfig decision_secret"),
        left={
            "id": KEY,
            "created_at": ENTRY,
            **dict.fromkeys(("resumes_as", "pause_reason"), "belongs to one pause; a cluster resumes as shadow"),
            **dict.fromkeys(("decision_secret_before", "decision_secret_before_until"), "ends within a day"),
            "burn_in_new_since": "begins with the import: machines that are there then are not new",
            **dict.fromkeys(("acts_until", "lease_holder", "unread_objects", "reachable_since"), SEEN),
            **dict.fromkeys(("watched_at", "watch_error", "version"), SEEN),
            "decision_change": RECORD,
        },
    ),
    "fleet.Maintenance": "windows name nodes that a new database does not know yet, and end by themselves",
    "accounts.CustomRole": Table(plain=_of("name verbs"), left=_ROW),
    "accounts.User": Table(
        plain=_of("username first_name last_name email is_active language zone home"),
        secret=_of("password"),
        left={
            "id": KEY,
            "last_login": RECORD,
            "date_joined": ENTRY,
            **dict.fromkeys(("is_superuser", "is_staff", "groups", "user_permissions"), "the portal does not use it"),
        },
    ),
    "accounts.RoleBinding": Table(
        plain=_of("user role custom cluster pool"),
        left={"id": KEY, "source": "only roles by hand; those of single sign-on come with the next sign-in"},
    ),
    "accounts.GroupMapping": Table(
        plain=_of("group role custom cluster pool"), left={"id": KEY, "members": "come with their next sign-in"}
    ),
    "accounts.Identity": Table(
        plain=_of("user issuer subject"), left={"id": KEY, "name": SEEN, "created_at": ENTRY, "seen_at": SEEN}
    ),
    "accounts.SavedView": Table(
        plain=_of("user listing name query shared opens_first"), left={"id": KEY, "created_at": ENTRY}
    ),
    "accounts.SharedFirstView": OWN,
    "accounts.TotpDevice": Table(
        secret=_of("seed last_step created_at"), left={"id": KEY, "user": KEY, "last_used_at": RECORD}
    ),
    "accounts.Passkey": Table(
        secret=_of("name credential public_key sign_count transports created_at"),
        left={"id": KEY, "user": KEY, "last_used_at": RECORD},
    ),
    "accounts.RecoveryCode": Table(secret=_of("digest"), left={"id": KEY, "user": KEY, "used_at": "only unused ones"}),
    "accounts.ApiToken": "a token is for one portal: agents enrol again, programs get new ones",
    "accounts.Invitation": "its link leads to the old portal",
    **dict.fromkeys(
        ("accounts.Session", "accounts.SpentChallenge", "accounts.AttemptCounter", "accounts.FailedAttempts"), RECORD
    ),
    "policies.Policy": Table(
        plain=_of("kind name created_at"),
        left={
            "id": KEY,
            "revision": "the active one is published as the first of the new portal",
            "cluster": "policies that a cluster keeps as objects are read from there",
            **dict.fromkeys(("archived_at", "archived_by", "archived_because"), "only active ones are in the file"),
        },
    ),
    "policies.Revision": Table(
        plain=_of("text"),
        left={
            **dict.fromkeys(("id", "policy", "number"), KEY),
            "document": "is made of the text",
            **dict.fromkeys(("author", "reason", "because", "at"), ENTRY),
        },
    ),
    "machines.Driver": Table(
        plain=_of("name kind cluster url username settings enabled"), secret=_of("password"), left=_ROW
    ),
    "audit_stream.Sink": Table(
        plain=_of("name kind address options topics enabled"),
        secret=_of("secret incoming_key"),
        left={**_ROW, **dict.fromkeys(("due_at", "attempts", "failures", "sent", "sent_at", "problem"), RECORD)},
    ),
    "notify.Channel": Table(
        plain=_of(
            "name kind recipients language person batching min_interval remind for_owners quiet_hours digest_at"
            " time_zone enabled"
        ),
        secret=_of("url secret"),
        left={
            **_ROW,
            **dict.fromkeys(("addressed_by", "person_by"), ENTRY),
            **dict.fromkeys(("tried_at", "sent_at", "trouble", "repeat_at"), RECORD),
        },
    ),
    "notify.Route": Table(plain=_of("channel kinds cluster least"), left=_ROW),
    "notify.NamespaceRoute": Table(plain=_of("channel cluster namespace"), left=_ROW),
    "sources.Source": Table(
        plain=_of("name kind cluster url settings enabled"),
        secret=_of("token"),
        left={
            **_ROW,
            **dict.fromkeys(("last_contact_at", "event_at", "newest_at", "lag", "accepted", "duplicates"), RECORD),
            **dict.fromkeys(("rejected", "error", "error_at", "due_at", "attempts", "cursor"), RECORD),
        },
    ),
    "checks.ValidationProfile": Table(
        plain=_of("name document"), left={"id": KEY, "changed_by": ENTRY, "changed_at": ENTRY}
    ),
    "repairs.VendorTerms": Table(
        plain=_of("vendor accept_days return_days"), left={"id": KEY, "changed_by": ENTRY, "changed_at": ENTRY}
    ),
    **dict.fromkeys(
        _of(
            "fleet.Node fleet.Agent fleet.Gpu fleet.Hardware fleet.CheckResult fleet.GpuSample fleet.ForeignCordon"
            " fleet.CheckChange parts.Part parts.Placement"
        ),
        SEEN,
    ),
    **dict.fromkeys(
        _of(
            "ledger.Chain ledger.Entry runtime.Heartbeat runtime.Lease runtime.RememberedHash runtime.Counter"
            " runtime.LoadSample fleet.PendingChange fleet.Command policies.PolicyTry policies.PolicyTryResult"
            " incidents.Batch incidents.Incident incidents.Occurrence incidents.JobSeen evidence.Bundle evidence.Chunk"
            " anchors.Publication anchors.Divergence anchors.Verification audit_stream.Issue audit_stream.Refusal"
            " audit_stream.Position rescue.Decision rescue.Rescue rescue.Step rescue.Approval rescue.Assignment"
            " rescue.Probation rescue.JobRestart checks.CheckRun checks.WatchedJob checks.CheckTarget checks.Validation"
            " checks.ValidatedNode jobs.JobOrder jobs.JobPerformance jobs.PodFailure repairs.Repair repairs.TicketEvent"
            " repairs.VendorDelivery preflight.PreflightRun preflight.PreflightReport preflight.PreflightRefusal"
            " preflight.ReadReportObject preflight.PairPlan preflight.PairTest preflight.PreflightGate notify.Delivery"
            " notify.Notice notify.Alert notify.OpenNeed notify.Cursor sources.SourceTest sources.TakenEvent"
            " sources.ToldSeries needs.NeedAct api.Answered"
        ),
        RECORD,
    ),
}
