"""``manage.py ledger verify``: walks every chain and says whether it holds."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from kcover_portal.ledger import queries


class Command(BaseCommand):
    """Verifies the hash chains of the ledger."""

    help = "verify: proves that no entry of the ledger was changed, removed or put in"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Takes the verb and, if wanted, one cluster."""
        parser.add_argument("verb", choices=("verify",))
        parser.add_argument("--cluster", help="only this cluster's chain")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints a line a chain; fails if one is broken."""
        clusters = [options["cluster"]] if options["cluster"] else queries.chains()
        broken = 0
        for cluster in clusters:
            verdict = queries.verify(cluster)
            name = cluster or "(installation)"
            if verdict.intact:
                self.stdout.write(f"{name}: {verdict.entries} entries, intact")
            else:
                broken += 1
                self.stdout.write(f"{name}: broken at entry {verdict.broken_at}: {verdict.because}")
        if broken:
            raise CommandError(f"{broken} of {len(clusters)} chains do not hold")
