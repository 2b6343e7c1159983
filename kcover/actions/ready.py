"""ready: wait until the node is Ready under another boot ID than the one that had to end."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``boot_id``: the boot in which the node came up."""

    boot_id: str = shown(_("Boot ID"), default="", kept=True)

    @property
    def new_boot(self) -> str:
        """The boot that the verification is about."""
        return self.boot_id


SPEC = ActionSpec(
    name="ready",
    title=_("Wait until ready"),
    place=(Stage.REPAIR, 7),
    progress=Progress,
)
