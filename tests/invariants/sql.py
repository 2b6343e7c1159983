"""SQL queries that run after every step; with the ORM they would take most of the walk's time."""

from typing import Any

from django.db import connection


def ask(query: str) -> list[tuple[Any, ...]]:
    """What a question finds."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()
