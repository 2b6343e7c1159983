"""``manage.py ledger``: verifies the audit log, rebuilds a rescue from it, and makes the key that signs it."""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kcover_portal.config.log_format import printed
from kcover_portal.ledger import queries, signatures
from kcover_portal.ledger.queries import rescue_replay
from kcover_portal.operate.ledger_verification import LedgerVerification
from kcover_portal.rescue.models import Rescue, Step

RESCUE_FIELDS = ("plan_hash", "outcome", "verified", "needs_human", "opened_at", "closed_at")


class Command(BaseCommand):
    """Verifies the audit log, replays rescues from it, and makes signing keys."""

    help = (
        "verify: check that no entry of the audit log was changed, removed or inserted, and with --anchor that "
        "the database has everything that was published. Exit status 1: it was, or it has not; 3: an anchor proves "
        "nothing. "
        "replay --rescue N: rebuild a rescue's state from the audit log and compare it with its row. "
        "key: create the key that signs the audit log; key --rotate replaces it"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=("verify", "replay", "key"))
        parser.add_argument(
            "--cluster", help="verify: only this cluster's chain; replay: required if the rescue's row is gone"
        )
        parser.add_argument("--rescue", type=int, metavar="N", help="replay: the rescue's number")
        parser.add_argument(
            "--anchor", type=Path, action="append", metavar="FILE", help="verify: compare with published heads"
        )
        parser.add_argument(
            "--keys", type=Path, help="verify: PEM file of the public keys to trust; default: the portal's"
        )
        parser.add_argument(
            "--since", type=datetime.fromisoformat, metavar="TIME", help="verify: ignore older lines of the anchor"
        )
        parser.add_argument("--path", type=Path, help="key: the private key's file; default: KCOVER_SIGNING_KEY")
        parser.add_argument("--rotate", action="store_true", help="key: replace the key and keep its public key")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints one line per chain, or the rescue. Fails if a chain is broken or the row differs."""
        if options["verb"] == "verify":
            verification = LedgerVerification(say=self.stdout.write)
            verification.chains([options["cluster"]] if options["cluster"] else None)
            for path in options["anchor"] or ():
                verification.anchor(path, keys=options["keys"], since=options["since"])
            verification.conclude()
        elif options["verb"] == "key":
            self._key(options["path"] or settings.KCOVER_SIGNING_KEY, rotate=options["rotate"])
        elif options["rescue"] is None:
            raise CommandError("replay requires --rescue N")
        else:
            self._replay(options["rescue"], cluster=options["cluster"])

    def _key(self, path: Path, *, rotate: bool) -> None:
        try:
            key_id = signatures.rotate_key(path) if rotate else signatures.create_key(path)
        except (signatures.SigningKeyUnusable, signatures.SigningKeyExists) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror}") from error
        self.stdout.write(f"key {key_id} in {path}; public keys in {path}{signatures.PUBLIC_SUFFIX}")

    def _replay(self, rescue: int, *, cluster: str | None) -> None:
        row = Rescue.objects.select_related("cluster", "node").filter(pk=rescue).first()
        if row is None and cluster is None:
            raise CommandError(f"rescue {rescue} has no row; give its cluster with --cluster NAME")
        try:
            state = queries.replay(cluster or (row.cluster.name if row else ""), rescue=rescue)
        except LookupError as error:
            raise CommandError(str(error)) from error
        self._print(state)
        if row is None:
            self.stdout.write("the row is gone; nothing to compare")
            return
        differences = list(_differences(state, row))
        for difference in differences:
            self.stdout.write(f"differs: {difference}")
        if differences:
            raise CommandError(f"rescue {rescue}: {len(differences)} differences between the row and the audit log")
        self.stdout.write("matches the row")

    def _print(self, state: queries.RescueState) -> None:
        ended = f", {state.outcome}" if state.outcome else ""
        self.stdout.write(f"rescue {state.rescue} on {state.node} by {state.requested_by}: {state.state}{ended}")
        self.stdout.write(f"  opened {state.opened_at}, closed {state.closed_at or 'not yet'}, {state.entries} entries")
        self.stdout.write(f"  plan {state.plan_hash}")
        for index, step in state.steps.items():
            because = f" ({printed(str(step.because))})" if step.because else ""
            self.stdout.write(f"  {index} {step.name}: {step.state}{because}")


def _differences(state: queries.RescueState, row: Rescue) -> Iterator[str]:
    """Yields the differences between the row and the replay. A worker's retries are not in the audit log."""
    if state.state != rescue_replay.PAUSES.get(row.state, row.state):
        yield f"state is {row.state}, the audit log says {state.state}"
    if state.node != row.node.name:
        yield f"node is {row.node.name}, the audit log says {state.node}"
    for name in RESCUE_FIELDS:
        if getattr(state, name) != getattr(row, name):
            yield f"{name} is {getattr(row, name)}, the audit log says {getattr(state, name)}"
    rows = {step.index: step for step in row.steps.all()}
    for index in sorted({*rows, *state.steps}):
        stored, replayed = rows.get(index), state.steps.get(index)
        if stored is None or replayed is None:
            yield f"step {index} is {_step_name(stored)}, the audit log says {_step_name(replayed)}"
            continue
        stored_state = "pending" if stored.state in rescue_replay.UNFINISHED else stored.state
        expected = (replayed.name, dict(replayed.args), replayed.state, replayed.finished_at)
        if (stored.name, stored.args, stored_state, stored.finished_at) != expected:
            yield f"step {index} {stored.name} is {stored.state}, the audit log says {replayed.name} {replayed.state}"


def _step_name(step: Step | queries.StepState | None) -> str:
    return "missing" if step is None else step.name
