"""``manage.py secrets``: the keys that encrypt secrets in the database."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover import audit
from kcover_portal.encryption import KeysUnusable, key_rotation, keyring
from kcover_portal.ledger import services as ledger
from kcover_portal.lib.shell_actor import shell_actor


class Command(BaseCommand):
    """Makes keys, shows which keys are in use, and encrypts all secrets with the first key."""

    help = (
        "key: print a new key for the key file. "
        "status: count the secrets in the database by their key, and list those that cannot be read. "
        "rotate: encrypt all secrets with the first key; then the other keys can be removed"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=("key", "status", "rotate"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Fails if a secret cannot be read, or the keys cannot."""
        if options["verb"] == "key":
            self.stdout.write(keyring.new_key())
            return
        try:
            known = keyring.load() + keyring.load(keyring.Ring.ENGINE)
            if options["verb"] == "rotate":
                self._rotate(known)
            else:
                self._status(known)
        except KeysUnusable as error:
            raise CommandError(str(error)) from error

    def _status(self, known: tuple[keyring.Key, ...]) -> None:
        counts = key_rotation.counts()
        for key in known:
            first = keyring.load(keyring.ring_of(key.id))[0]
            use = "encrypts and decrypts" if key is first else "decrypts"
            self.stdout.write(f"key {key.id} {use}: {counts.pop(key.id, 0)} secrets")
        for key_id, count in sorted(counts.items()):
            self.stdout.write(f"unknown key {key_id}: {count} secrets" if key_id else f"not encrypted: {count} secrets")
        unreadable = key_rotation.unreadable()
        for secret in unreadable:
            self.stderr.write(str(secret))
        if unreadable:
            raise CommandError(f"{len(unreadable)} secrets cannot be read")

    def _rotate(self, known: tuple[keyring.Key, ...]) -> None:
        if not known:
            raise CommandError("no key is configured; set KCOVER_ENCRYPTION_KEY_FILE or KCOVER_ENCRYPTION_KEY_COMMAND")
        done = key_rotation.rotate(key_rotation.models_with_secrets())
        for secret in done.unreadable:
            self.stderr.write(str(secret))
        if done.changed:
            act = audit.SecretsRotated(key=known[0].id, changed=done.changed, unreadable=len(done.unreadable))
            ledger.record("", act, actor=shell_actor(), now=timezone.now())
        engine = next((f" and {key.id}" for key in keyring.load(keyring.Ring.ENGINE)), "")
        self.stdout.write(
            f"{done.changed} secrets encrypted with key {known[0].id}{engine}; {done.unchanged} already were"
        )
        if done.unreadable:
            raise CommandError(f"{len(done.unreadable)} secrets cannot be read and were left; keep the other keys")
