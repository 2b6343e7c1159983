"""The ids that the log lines of the current work carry: request, task, rescue, node, incident.

They are kept for each thread and asyncio task. Work that is passed to another thread begins without them.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_NONE: Final[Mapping[str, object]] = MappingProxyType({})
_ids: ContextVar[Mapping[str, object]] = ContextVar("log ids", default=_NONE)
_ATTRIBUTE: Final = "log_ids"  # of an error: the ids of the work that it ended


@contextlib.contextmanager
def bound(**ids: object) -> Iterator[None]:
    """Adds ids to the log lines within the block, and to a later line about an error that leaves the block."""
    token = _ids.set({**_ids.get(), **ids})
    try:
        yield
    except Exception as error:
        if not hasattr(error, _ATTRIBUTE):
            with contextlib.suppress(AttributeError):  # an error with slots
                setattr(error, _ATTRIBUTE, _ids.get())
        raise
    finally:
        _ids.reset(token)


def begin(**ids: object) -> None:
    """Sets the ids of this thread for new work, and forgets those of the work before."""
    _ids.set(ids)


def current(error: BaseException | None = None) -> Mapping[str, object]:
    """The ids of the current work, with those of the work that ended with this error."""
    return {**_ids.get(), **getattr(error, _ATTRIBUTE, _NONE)}
