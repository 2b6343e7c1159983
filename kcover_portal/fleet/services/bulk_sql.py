"""SQL over many rows at once, for which Django has no words: the rows go in as one JSON parameter.

One statement is the same on PostgreSQL and SQLite but for the way in (``given``) and the row locks (``LOCKED``), which
SQLite neither has nor needs: its writers queue at the start of their transactions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

Row = Mapping[str, Any]


def given(**columns: str) -> str:
    """What follows FROM: a relation ``given`` with these columns (name=SQL type), one parameter: ``rows(...)``."""
    if connection.vendor == "postgresql":
        return (
            f"json_to_recordset(%s::json) AS given({', '.join(f'{name} {type_}' for name, type_ in columns.items())})"
        )
    taken = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in columns)
    return f"(SELECT {taken} FROM json_each(%s)) AS given"


def rows(values: Sequence[Row]) -> str:
    """The parameter of ``given``."""
    return json.dumps(values, separators=(",", ":"))


def moment(at: Any) -> Any:
    """A time as a parameter, in the form in which the database's columns hold it."""
    return connection.ops.adapt_datetimefield_value(at)


def locked(table: str) -> str:
    """What ends a SELECT whose rows of ``table`` nobody else may change until the transaction is over."""
    return f"FOR NO KEY UPDATE OF {table}" if connection.vendor == "postgresql" else ""


def run(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows that come back, none where the statement returns none."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
