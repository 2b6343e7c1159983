"""Errors that pages, REST and commands report in the same way."""

from collections.abc import Sequence

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


class FieldErrors(Exception):
    """Several invalid inputs of one request."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error}" for error in errors))
        self.errors = tuple(errors)
