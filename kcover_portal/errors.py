"""Errors that every door answers alike."""


class FieldError(Exception):
    """A rejected input.

    ``field`` names it, the message says what is wrong and what to write instead, and ``code`` is stable for programs.
    """

    def __init__(self, field: str, message: str, code: str = "invalid") -> None:
        super().__init__(message)
        self.field = field
        self.code = code
