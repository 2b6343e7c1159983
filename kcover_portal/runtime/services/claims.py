"""Claimed rows. Rows are the queue: a worker claims a due row by one conditional UPDATE, for the time of a lease.

While the lease lasts, no other worker claims the row. A worker whose lease has ended may only be slow, so each of its
later writes is conditional on what marks its claim: a fencing token, or the name of the holder.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import F, Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)


def free(*, now: datetime, lease: str = "lease_until") -> Q:
    """The condition on rows that no worker holds. ``lease``: the column with the end of the lease, null without one."""
    return Q(**{lease: None}) | Q(**{f"{lease}__lte": now})


@dataclass(frozen=True, kw_only=True)
class Claims(Generic[Row]):
    """The claims of a model's rows. ``lasts``: the time of a lease. ``related``: what a claimed row is read with.

    ``mark``: the column that marks a claim, either a ``token`` that counts claims, or the name of the holder.
    ``lease``: the column with the end of the lease. ``state``: of claimed rows; "": the one in which a row was read.
    """

    model: type[Row]
    lasts: timedelta
    mark: str = "token"
    lease: str = "lease_until"
    state: str = ""
    related: tuple[str, ...] = ()

    def take(self, due: QuerySet[Row], pk: int, *, now: datetime, **columns: Any) -> Row | None:
        """Claims the row if it is free, with more columns to set. Returns it as it is then, or None.

        ``due``: the rows that wait for a worker, whether or not one has them: that they are free is added here.
        """
        mark = F("token") + 1 if self.mark == "token" else secrets.token_hex(16)
        with transaction.atomic(savepoint=False):  # or another worker's claim could be read
            claimed = {self.mark: mark, self.lease: now + self.lasts, **columns}
            if not due.filter(free(now=now, lease=self.lease), pk=pk).update(**claimed):
                return None
            return self.model._default_manager.select_related(*self.related or (None,)).get(pk=pk)

    def write(self, row: Row, **columns: Any) -> bool:
        """Writes columns of a claimed row. Returns False if another worker has it, or its state is another one."""
        held: Any = row
        written = bool(self._ours(row).filter(state=self.state or held.state).update(**columns))
        for name, value in columns.items() if written else ():
            setattr(row, name, value)
        return written

    def renew(self, row: Row, *, now: datetime, **columns: Any) -> bool:
        """Writes columns as ``write`` does, and begins the lease again."""
        return self.write(row, **{self.lease: now + self.lasts}, **columns)

    def put_back(self, row: Row, **columns: Any) -> bool:
        """Writes columns as ``write`` does, and ends the lease."""
        return self.write(row, **{self.lease: None}, **columns)

    def release(self, row: Row) -> None:
        """Ends the lease, whatever the row's state is now, unless another worker has the row."""
        self._ours(row).update(**{self.lease: None})

    def _ours(self, row: Row) -> QuerySet[Row]:
        return self.model._default_manager.filter(pk=row.pk, **{self.mark: getattr(row, self.mark)})
