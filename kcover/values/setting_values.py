"""Values of settings as commands (text) and REST (JSON) give them; shared by sources and machine drivers."""

from collections.abc import Callable

from kcover import reasons


class ValueInvalid(reasons.ExplainedError, ValueError):
    """The value of a setting is refused. The caller adds the name of the setting."""


def number(least: int, most: int) -> Callable[[object], int]:
    """A reader of whole numbers in these bounds, also as text. It raises ValueInvalid."""

    def read(value: object) -> int:
        found = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise ValueInvalid(reasons.of("source_setting_number", least=least, most=most))
        return found

    return read


def boolean(value: object) -> bool:
    """Reads true or false, also as text. Raises ValueInvalid."""
    if value not in (True, False, "true", "false"):
        raise ValueInvalid(reasons.of("source_setting_boolean"))
    return value in (True, "true")
