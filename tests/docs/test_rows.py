"""The page with the settings of rows: its tables are those of the declarations."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.audit_stream.services.sinks import SINKS
from kcover_portal.machines.services import DRIVERS
from kcover_portal.notify.services.channels import CHANNELS
from kcover_portal.settings_rows import Resource
from kcover_portal.settings_rows.columns import (
    Choice,
    Column,
    Flag,
    Number,
    Options,
    Pairs,
    Person,
    Recipients,
    Secret,
    Several,
    Text,
)
from kcover_portal.sources.services import SOURCES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "install" / "rows.md"
RESOURCES: tuple[Resource[Any], ...] = (SINKS, SOURCES, CHANNELS, DRIVERS)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.noun)
def test_the_page_has_the_table_of_each_kind_of_rows(resource: Resource[Any]) -> None:
    expected = table(resource)
    assert expected in PAGE.read_text(encoding="utf-8"), f"write this table to {PAGE}:\n{expected}"


def table(resource: Resource[Any]) -> str:
    """The settings of the rows as a Markdown table."""
    lines = ["| setting | value | default | kinds |", "|---|---|---|---|"]
    for column in (*resource.columns, *resource.making):
        kinds = [kind for kind in resource.kinds if column.is_of(kind)]
        named = "all" if kinds == list(resource.kinds) else ", ".join(map(str, kinds))
        first = column.initial[0] if isinstance(column.initial, list) else column.initial
        default = "" if first in (None, False) else f"`{first}`"
        lines.append(f"| `{column.name}` | {value(column, kinds)} | {default} | {named} |")
    return "\n".join(lines)


def value(column: Column, kinds: Iterable[str]) -> str:
    """What the setting takes."""
    match column:
        case Secret():
            return "a secret, never shown again"
        case Text(most=most):
            return f"text, at most {most} characters"
        case Flag():
            return "yes or no"
        case Number(most=most, null=null):
            return f"a whole number from 0 to {most}" + (", or none" if null else "")
        case Choice(choices=choices):
            return "one of " + ", ".join(f"`{name}`" for name, _ in choices)
        case Several(choices=choices):
            return "some of " + ", ".join(f"`{name}`" for name, _ in choices)
        case Recipients(most=most):
            return f"at most {most} e-mail addresses"
        case Person():
            return "a user, or nobody"
        case Pairs() | Options():
            return "; ".join(f"{kind}: " + ", ".join(f"`{key}`" for key in keys(column, kind)) for kind in kinds)
    raise AssertionError(column)


def keys(column: Pairs | Options, kind: str) -> list[str]:
    return list(column.keys(kind)) if isinstance(column, Pairs) else [part.name for part in column.parts(kind)]
