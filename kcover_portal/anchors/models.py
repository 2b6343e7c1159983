"""The state of publication, and the result of the comparison with an anchor. The evidence itself is outside the
database.
"""

from django.db import models

from kcover import reasons


class Publication(models.Model):
    """The last publication of signed heads to one place: ``log``, ``file``, ``webhook``; ``key``: the signature."""

    place = models.CharField(max_length=20, primary_key=True)
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
