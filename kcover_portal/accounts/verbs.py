"""Verbs, and the built-in roles, which are sets of verbs."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Verb(models.TextChoices):
    """An action that a role can allow. Each page and endpoint requires one of these."""

    READ = "read", _("See nodes, faults, rescues and settings")
    REPAIR = "repair", _("Cordon, drain, reboot, release and exclude nodes; cancel, retry and skip")
    CHECK = "check", _("Run and stop checks")
    CLOSE = "close", _("Close incidents and storms")
    HANDLE_REPAIRS = "handle-repairs", _("Report repairs and take them through the repair desk")
    MAINTAIN = "maintain", _("Schedule and end maintenance")
    PAUSE = "pause", _("Pause automation")
    RESUME = "resume", _("Resume automation")
    GUARD = "guard", _("Set stricter modes and operating settings of clusters")
    APPROVE = "approve", _("Approve and reject rescues")
    OVERRIDE = "override", _("Override guards for one action")
    CONFIGURE = "configure", _("Change guards, loosen modes, change all settings of clusters")
    WRITE_POLICIES = "write-policies", _("Change policies")
    WRITE_CHANNELS = "write-channels", _("Change notification channels and routes")
    STREAM_AUDIT = "stream-audit", _("Change where the audit log is sent")
    ADMINISTER = "administer", _("Manage users, roles and tokens")


class Role(models.TextChoices):
    """The built-in roles. Each includes the ones before it."""

    VIEWER = "viewer", _("Viewer")
    OPERATOR = "operator", _("Operator")
    APPROVER = "approver", _("Approver")
    ADMIN = "admin", _("Admin")


_OPERATOR = {
    *(Verb.READ, Verb.REPAIR, Verb.CHECK, Verb.CLOSE, Verb.HANDLE_REPAIRS),
    *(Verb.MAINTAIN, Verb.PAUSE, Verb.RESUME, Verb.GUARD),
}
VERBS_OF: dict[str, frozenset[str]] = {
    role.value: frozenset(verb.value for verb in verbs)
    for role, verbs in {
        Role.VIEWER: {Verb.READ},
        Role.OPERATOR: _OPERATOR,
        Role.APPROVER: {*_OPERATOR, Verb.APPROVE, Verb.OVERRIDE},
        Role.ADMIN: set(Verb),
    }.items()
}
