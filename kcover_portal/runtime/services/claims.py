"""Claimed rows. Rows are the queue: a worker claims a due row by one conditional UPDATE, for the time of a lease.

While the lease lasts, no other worker claims the row. A worker whose lease has ended may only be slow, so each of its
later writes is conditional on what marks its claim: a fencing token, or the name of the holder.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from django.db import transaction
from django.db.models import F, Model, Q, QuerySet

from kcover_portal.lib.prepared import Prepared, PreparedUpdate, is_expression

Row = TypeVar("Row", bound=Model)
NEXT_TOKEN: Final = F("token") + 1


def free(*, now: datetime, lease: str = "lease_until") -> Q:
    """The condition on rows that no worker holds. ``lease``: the column with the end of the lease, null without one."""
    return Q(**{lease: None}) | Q(**{f"{lease}__lte": now})


@dataclass(frozen=True, kw_only=True)
class Claims(Generic[Row]):
    """The claims of a model's rows. ``due``: the rows whose time has come, whether or not a worker has them.

    It is called once, with a sample ``now``, which it may only compare. Columns are set as by ``PreparedUpdate.run``.

    ``lasts``: the time of a lease. ``related``: what a claimed row is read with. ``mark``: the column that marks a
    claim, either a ``token`` that counts claims, or the name of the holder. ``lease``: the column with the end of the
    lease. ``state``: of claimed rows; "": the one in which a row was read.
    """

    model: type[Row]
    due: Callable[..., QuerySet[Row]]
    lasts: timedelta
    mark: str = "token"
    lease: str = "lease_until"
    state: str = ""
    related: tuple[str, ...] = ()

    def take(self, pk: int, *, now: datetime, **columns: Any) -> Row | None:
        """Claims the row if it is due and free, with more columns to set. Returns it as it is then, or None."""
        mark = NEXT_TOKEN if self.mark == "token" else secrets.token_hex(16)
        with transaction.atomic(savepoint=False):  # or another worker's claim could be read
            claimed = {self.mark: mark, self.lease: now + self.lasts, **columns}
            return self._read.get(row=pk) if self._take.run(claimed, row=pk, now=now) else None

    def update(self, pk: int, mark: int | str, state: str, columns: Mapping[str, Any]) -> bool:
        """Writes columns of the row with this state and this mark of a claim. Returns False if it has other ones."""
        return bool(self._write.run(columns, row=pk, mark=mark, state=state))

    def write(self, row: Row, **columns: Any) -> bool:
        """Writes columns of a claimed row. Returns False if another worker has it, or its state is another one."""
        held: Any = row
        written = self.update(row.pk, getattr(row, self.mark), self.state or held.state, columns)
        if written:
            set_on(row, columns)
        return written

    def renew(self, row: Row, *, now: datetime, **columns: Any) -> bool:
        """Writes columns as ``write`` does, and begins the lease again."""
        return self.write(row, **{self.lease: now + self.lasts}, **columns)

    def put_back(self, row: Row, **columns: Any) -> bool:
        """Writes columns as ``write`` does, and ends the lease."""
        return self.write(row, **{self.lease: None}, **columns)

    def release(self, row: Row) -> None:
        """Ends the lease, whatever the row's state is now, unless another worker has the row."""
        rows = self.model._default_manager.filter(pk=row.pk, **{self.mark: getattr(row, self.mark)})
        rows.update(**{self.lease: None})

    @cached_property
    def _take(self) -> PreparedUpdate:
        return PreparedUpdate(
            lambda row, now: self.due(now=now).filter(free(now=now, lease=self.lease), pk=row), row=int, now=datetime
        )

    @cached_property
    def _read(self) -> Prepared[Row]:
        rows = self.model._default_manager.select_related(*self.related or (None,)).order_by()
        return Prepared(lambda row: rows.filter(pk=row), row=int)

    @cached_property
    def _write(self) -> PreparedUpdate:
        rows, mark = self.model._default_manager, int if self.mark == "token" else str
        return PreparedUpdate(
            lambda row, mark, state: rows.filter(**{"pk": row, self.mark: mark, "state": state}),
            row=int,
            mark=mark,
            state=str,
        )


def set_on(row: Model, columns: Mapping[str, Any]) -> None:
    """Sets on the instance what was written to its row, except values that the database computes."""
    for name, value in columns.items():
        if not is_expression(value):
            setattr(row, name, value)
