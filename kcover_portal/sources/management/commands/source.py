"""``manage.py source``: systems that report faults."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from kcover_portal.config.log_format import printed
from kcover_portal.settings_rows.command import SEVERAL, SettingsCommand
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source


class Command(SettingsCommand):
    """Adds, lists, tests and removes sources."""

    help = "add, list, test and remove the systems that report faults"
    resource = services.SOURCES
    more_verbs = ("test",)
    pairs = SEVERAL
    of_remove = "remove a source and revoke its tokens"

    def add_verbs(self, verbs: Any) -> None:
        """Adds ``test``."""
        test = verbs.add_parser("test", help="show what a source saw in the last hour; exit status 1 if it is broken")
        test.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does what the verb says, also with the sources that exist for each cluster. Raises CommandError."""
        services.make_watched_sources(timezone.now())
        super().handle(*args, **options)

    def added(self, row: Source) -> None:
        """What to do next, and what the source would believe."""
        if (warning := queries.warning(row)) is not None:
            self.stdout.write(f"warning: {warning}")
        if row.is_pushed:
            self.stdout.write(f"send events to /api/v1/sources/{row.name}/events with a token of:")
            self.stdout.write(f"  manage.py token create --kind source --source {row.name}")

    def columns(self, row: Source) -> Sequence[str]:
        """Its last event, how late that was, and its last error."""
        lag = f"lag {row.lag:.1f} s" if row.lag is not None else "no lag"
        last = f"last event {row.event_at:%Y-%m-%d %H:%M:%S}" if row.event_at else "no event"
        return (last, lag, str(row.why) if row.why else "no error")

    def _test(self, options: dict[str, Any]) -> None:
        trial = services.try_source(self.find(options["name"]), now=timezone.now())
        lag = f", lag {trial.lag_seconds:.1f} s" if trial.lag_seconds is not None else ""
        self.stdout.write(f"{'ok' if trial.ok else 'not ok'}: {trial.seen} events in the last hour{lag}")
        if trial.error is not None:
            raise CommandError(printed(str(trial.error)))
