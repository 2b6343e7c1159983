"""The state of publication, the result of the comparison with an anchor, and verifications that a person asked for.

The evidence itself is outside the database.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from kcover import reasons


class Publication(models.Model):
    """The last publication of signed heads to one place: ``log``, ``file``, ``webhook``, ``bucket``, ``lease CLUSTER``.

    ``key``: the signature.
    """

    place = models.CharField(max_length=120, primary_key=True)
    published_at = models.DateTimeField(null=True, help_text="the last success")
    problem = models.JSONField(default=dict, help_text="the reason of the present failure; {}: none")

    @property
    def why(self) -> reasons.Reason | None:
        """The reason why the last attempt failed; None if it succeeded."""
        return reasons.kept(self.problem)


class Divergence(models.Model):
    """The database lacked what an anchor says: it was restored, or rewritten. ``anchor``: SHA-256 of the anchor."""

    anchor = models.CharField(max_length=64, primary_key=True)
    anchored_at = models.DateTimeField()
    at = models.DateTimeField()
    because = models.JSONField(default=list, help_text="one reason for each chain")


class Verification(models.Model):
    """Hash chains that workers verify in slices for a person or token. ``position``: in the chain under way."""

    class State(models.TextChoices):
        WAITING = "waiting", _("Waiting")
        RUNNING = "running", _("Running")
        DONE = "done", _("Done")
        FAILED = "failed", _("Failed")

    OPEN = (State.WAITING, State.RUNNING)

    owner = models.CharField(max_length=40, help_text="who asked, as places name them; only they may read it")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    pending = models.JSONField(default=list, help_text="names of the chains that are left, the next one last")
    position = models.JSONField(default=dict)
    verdicts = models.JSONField(default=list)
    done = models.PositiveBigIntegerField(default=0, help_text="entries that were verified")
    total = models.PositiveBigIntegerField(default=0, help_text="entries of the chains at the beginning")
    slices = models.PositiveIntegerField(default=0, help_text="begun since the last progress")
    holder = models.CharField(max_length=40, blank=True)
    lease_until = models.DateTimeField(null=True)
    requested_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("owner",),
                condition=models.Q(state__in=("waiting", "running")),
                name="one_open_verification_a_person",
            ),
        )
