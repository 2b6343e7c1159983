"""Garbled files: each is refused with its place, or imported; never a traceback, and never a half."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction

from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import FileInvalid
from tests.portal.operate.settings_file.world import empty, exported, fill, imported

pytestmark = pytest.mark.django_db
TRIALS = 20
PLACES = ("$", "line ", "an object", "the number", "a number", "the file")
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 10**12, 10**30, 1.5, "", "x", "x" * 5000, "日本", "a\u0000b", "\ud800", "* / ../"),
    *([], {}, [None], [[]], {"a": None}, {"": []}, [{"name": 1}]),
)


class Undone(Exception):
    """Ends a trial."""


def rows() -> dict[str, int]:
    return {model._meta.label: model._base_manager.count() for model in apps.get_models()}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


def mutated(whole: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The file with some values replaced, removed, doubled or exchanged."""
    found = copy.deepcopy(whole)
    for _ in range(chance.randint(1, 2)):
        *above, key = chance.choice(list(places(found)))
        parent = found
        for step in above:
            parent = parent[step]
        match chance.randrange(5):
            case 0 | 1:
                parent[key] = chance.choice(JUNK)
            case 2:
                del parent[key]
            case 3 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case _:
                other = found
                for step in chance.choice(list(places(found))):
                    other = other[step]
                parent[key] = copy.deepcopy(other)
    return found


def check(content: bytes, **options: Any) -> bool:
    """Tries a file, and undoes it; returns whether it was accepted."""
    before = rows()
    refused = ""
    try:
        with transaction.atomic():
            try:
                imported(content, secrets=False, **options)
            except FileInvalid as error:
                refused = str(error)
            assert not refused or rows() == before
            exported()  # what is stored can be read
            raise Undone
    except Undone:
        assert not refused or refused.startswith(PLACES), refused
        return not refused


def test_no_truncation_is_accepted() -> None:
    fill()
    text = exported().encode()
    whole = len(text.rstrip())
    for length in (*range(0, whole, 7), *range(whole - 50, whole)):
        with pytest.raises(FileInvalid):
            document.read(text[:length])


@pytest.mark.parametrize("seed", range(4))
def test_random_values(seed: int) -> None:
    chance = random.Random(seed)
    fill()
    whole = json.loads(exported())
    here = seed % 2 == 0  # the objects are there, or the database is empty
    if not here:
        empty()
    accepted = [
        check(json.dumps(mutated(whole, chance)).encode(), update=here, keep_modes=chance.random() < 0.5)
        for _ in range(TRIALS)
    ]
    assert any(accepted)
    assert not all(accepted)


def test_random_bytes() -> None:
    chance = random.Random(7)
    fill()
    text = exported().encode()
    for _ in range(TRIALS):
        garbled = bytearray(text)
        for _ in range(chance.randint(1, 3)):
            garbled[chance.randrange(len(garbled))] = chance.choice(b'{}[]",:0x\\\xff\x00 ')
        check(bytes(garbled), update=True)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "line 1"),
        (b"\xff", "line 1"),
        (b"[]", "$"),
        (b'{"kind": "kcover-portal settings", "version": 2, "portal": "9.1"}', "$.version"),
        (b'{"kind": "kcover-portal settings", "version": true, "portal": "9.1"}', "$.version"),
        (b'{"kind": "kcover-portal settings", "version": 1, "portal": "", "roles": [{"name": 1}]}', ""),
        (b'{"kind": "kcover-portal settings", "version": 1, "portal": "", "new": []}', ""),
        (b"[" * 100_000, ""),
        (b'{"a": NaN}', ""),
        (b'{"a": 1, "a": 2}', ""),
    ],
)
def test_what_is_no_file_is_refused_with_its_place(content: bytes, place: str) -> None:
    with pytest.raises(FileInvalid) as refused:
        document.read(content)
    assert str(refused.value).startswith(place)
