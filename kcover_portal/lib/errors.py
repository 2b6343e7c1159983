"""Errors that pages, REST and commands report in the same way."""

from collections.abc import Sequence
from http import HTTPStatus

from kcover import reasons


class FieldError(reasons.ExplainedError):
    """An invalid input.

    ``field`` is its name; "" stands for the input as a whole. ``reason`` says what is wrong and what to write instead.
    ``conflict``: the value is valid, but the present state is in its way.
    """

    def __init__(self, field: str, reason: reasons.Reason, *, conflict: bool = False) -> None:
        super().__init__(reason)
        self.field = field
        self.conflict = conflict


class Refused(reasons.ExplainedError):
    """A request that a service refuses: it does not fit the present state, unless ``status`` says something else.

    REST answers with ``status``; a dialog of the console shows the reason.
    """

    status: HTTPStatus = HTTPStatus.CONFLICT


class FieldErrors(Exception):
    """Several invalid inputs of one request."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error}" for error in errors))
        self.errors = tuple(errors)
