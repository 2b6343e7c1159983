"""SQL statements over many rows that Django's ORM cannot express. The rows are passed as one JSON parameter.

Statements are the same on PostgreSQL and SQLite, except for the JSON relation (``given``) and the row locks
(``locked``). SQLite needs no row locks, because its writers queue at the start of their transactions.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from django.db import connection

Row = Mapping[str, Any]


def given(**columns: str) -> str:
    """Returns a FROM item: the relation ``given`` with these columns (name=SQL type). Its parameter is ``rows()``."""
    if connection.vendor == "postgresql":
        return (
            f"json_to_recordset(%s::json) AS given({', '.join(f'{name} {type_}' for name, type_ in columns.items())})"
        )
    extracted = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in columns)
    return f"(SELECT {extracted} FROM json_each(%s)) AS given"  # nosec B608


def rows(values: Sequence[Row]) -> str:
    """Returns the parameter of ``given``."""
    return msgspec.json.encode(values).decode()


def moment(at: Any) -> Any:
    """Converts a time to a parameter in the database's format."""
    return connection.ops.adapt_datetimefield_value(at)


def locked(table: str) -> str:
    """Returns the end of a SELECT that locks its rows of ``table`` until the transaction ends."""
    return f"FOR NO KEY UPDATE OF {table}" if connection.vendor == "postgresql" else ""


def lock_nodes(nodes: Collection[int]) -> None:
    """Locks the rows of these nodes until the transaction ends, in the order in which everybody locks several nodes.

    A statement that updates many nodes locks them in any order, so that it could wait for a transaction that waits for
    it.
    """
    if connection.vendor == "postgresql" and len(nodes) > 1:
        run("SELECT id FROM fleet_node WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", [sorted(nodes)])


def run(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Executes the statement and returns its rows, if any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []
