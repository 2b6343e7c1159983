"""The format of log lines, with the tokens of approval links removed."""

import logging
import re

# An approval link answers in a person's name. Its token is behind # and is not sent to servers; this hides a token that
# somebody put into the path, and that a proxy or an error repeats.
_LINK = re.compile(r"(/approve/)#?[^\s\"'?&<>]+")


class Redacted(logging.Formatter):
    """Hides tokens of approval links in the message and in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without tokens."""
        return _LINK.sub(r"\1…", super().format(record))
