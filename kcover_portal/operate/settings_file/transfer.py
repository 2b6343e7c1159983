"""Exports what people have set, and imports it: all of a file in one transaction, or nothing."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction
from rest_framework.exceptions import ValidationError as BodyInvalid

from kcover import audit
from kcover_portal import encryption
from kcover_portal.fleet.services import registry
from kcover_portal.ledger import services as ledger
from kcover_portal.lib.errors import FieldError, FieldErrors, Refused
from kcover_portal.operate.settings_file import clusters, document, people, rows, rules
from kcover_portal.operate.settings_file.document import FileInvalid, Item, Secrets
from kcover_portal.operate.settings_file.sections import ItemInvalid, LeftOut, Run, Section, at

SECTIONS: Final[Sequence[Section[Any]]] = (
    people.Roles(),
    clusters.Clusters(),
    people.People(),
    people.Groups(),
    rules.Profiles(),
    rules.Vendors(),
    rows.DRIVER_ROWS,
    rows.SINK_ROWS,
    rows.CHANNEL_ROWS,
    rows.SOURCE_ROWS,
    rules.Policies(),
    rows.Routes(),
    rows.NamespaceRoutes(),
    clusters.Installation(),
)
MAX_NAMED: Final = 500  # objects in the entry of the audit log


@dataclass(kw_only=True)
class Outcome:
    """What an import does. ``left``: objects that differ and stay; ``same``: how many do not differ."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    same: int = 0
    notes: list[str] = field(default_factory=list)


class _Undone(Exception):
    """Ends a dry run."""


def export(passphrase: str | None, *, actor: str, now: datetime) -> str:
    """The text of the file. With a passphrase the secrets are in it, which is recorded. Raises SecretUnreadable."""
    with transaction.atomic():
        settings, secrets = document.Settings(), _secrets(passphrase is not None)
        for section in SECTIONS:
            setattr(settings, section.name, section.read())
        if passphrase is not None:
            count = sum(len(fields) for items in secrets.values() for fields in items.values())
            ledger.record("", audit.SecretsExported(secrets=count), actor=actor, now=now)
    return document.write(settings, secrets, passphrase)


def import_file(
    content: bytes,
    *,
    passphrase: Callable[[], str] | None,
    update: bool = False,
    keep_modes: bool = False,
    dry_run: bool = False,
    actor: str,
    now: datetime,
) -> Outcome:
    """Imports a file, all or nothing. Raises FileInvalid.

    ``passphrase``: asks for it, if the file has secrets; None leaves them out. ``update``: objects that are there are
    changed. ``dry_run``: nothing is stored.
    """
    file = document.read(content)
    secrets = document.secrets_of(file, passphrase()) if file.secrets and passphrase is not None else {}
    run = Run(actor=actor, now=now, keep_modes=keep_modes, secrets=secrets)
    outcome = Outcome(notes=run.notes)
    try:
        with transaction.atomic(), ledger.last():
            admins = people.administrators()
            for section in SECTIONS:
                _import(section, getattr(file, section.name), outcome, run, update=update)
            for act in run.last:
                act()
            if admins and not people.administrators():
                raise FileInvalid("$.people: nobody would be left who is admin in all clusters; keep one")
            _record(content, outcome, run)
            if dry_run:
                raise _Undone
    except _Undone:
        pass
    return outcome


def _secrets(wanted: bool) -> Secrets:
    """The values of all secrets that are set."""
    found: Secrets = {}
    for section in SECTIONS if wanted else ():
        named = {item.key: section.secrets(item) for item in section.read()}
        found[section.name] = {key: values for key, values in named.items() if values}
    return found


def _import(section: Section[Any], items: Sequence[Item], outcome: Outcome, run: Run, *, update: bool) -> None:
    have = {item.key: item for item in section.read()} if items else {}
    for index, item in enumerate(items):
        called = f"{section.noun} {item.key}"
        before = have.get(item.key)
        with _placed(f"$.{section.name}[{index}]"):
            differs = _differences(section, before, item, run) if before is not None else []
            told = f"{called}: {', '.join(differs)}" if differs else called
            if before is not None and not differs:
                outcome.same += 1
            elif before is not None and not update and not section.is_own(item, run):
                outcome.left.append(told)
            else:
                _write(section, item, before, told, outcome, run)


def _write(section: Section[Any], item: Item, before: Item | None, told: str, outcome: Outcome, run: Run) -> None:
    """Makes or changes an object, and notes which."""
    try:
        if before is None:
            section.make(item, run)
            outcome.created.append(told)
        else:
            changed = section.change(item, before, run)
            (outcome.changed if changed else outcome.left).append(told)
    except LeftOut as left:
        outcome.left.append(told)
        run.notes.append(f"{section.noun} {item.key}: is left out: {left}")


def _differences(section: Section[Any], before: Item, item: Item, run: Run) -> list[str]:
    """The names of what differs; secrets count only if the file has them."""
    found = document.differences(before, item)
    given = section.given(item, run)
    if given:
        held = section.secrets(before)
        found += [name for name, value in given.items() if held.get(name) != value and name not in found]
    return found


def _record(content: bytes, outcome: Outcome, run: Run) -> None:
    if not (outcome.created or outcome.changed):
        return
    act = audit.SettingsImported(
        sha256=hashlib.sha256(content).hexdigest(),
        created=tuple(outcome.created[:MAX_NAMED]),
        changed=tuple(outcome.changed[:MAX_NAMED]),
        left=len(outcome.left),
        keep_modes=run.keep_modes,
    )
    ledger.record("", act, **run.by)


@contextmanager
def _placed(path: str) -> Iterator[None]:
    """Raises FileInvalid with the place of the object for what its services refuse."""
    try:
        with transaction.atomic():
            yield
    except ItemInvalid as error:
        raise FileInvalid(f"{path}{error.path}: {error}") from error
    except FieldErrors as error:
        first = at(error.errors[0], ".settings")
        raise FileInvalid(f"{path}{first.path}: {first}") from error
    except FieldError as error:
        raise FileInvalid(f"{path}{at(error).path}: {error}") from error
    except BodyInvalid as error:
        below, text = _first(error.detail)
        raise FileInvalid(f"{path}.settings{below}: {text}") from error
    except (Refused, registry.ClusterRefused, encryption.SecretUnreadable, encryption.KeysUnusable) as error:
        raise FileInvalid(f"{path}: {error}") from error
    except (DataError, IntegrityError, ValidationError, OverflowError) as error:
        raise FileInvalid(f"{path}: the database refuses it: {str(error).splitlines()[0][:200]}") from error


def _first(detail: Any) -> tuple[str, str]:
    """The path and the text of the first problem of a body."""
    if isinstance(detail, dict):
        name, problem = next(iter(cast("dict[str, Any]", detail).items()))
        below, text = _first(problem)
        return f".{name}{below}", text
    if isinstance(detail, list):
        return _first(detail[0])
    return "", str(detail)
