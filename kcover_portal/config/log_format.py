"""The format of log lines, as text or JSON, with the tokens of links removed."""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kcover_portal.config import log_context

TEXT: Final = "text"
FORMATS: Final = (TEXT, "json")
LINE: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

# An approval link answers in a person's name, and a wall link shows the fleet. Their tokens are behind # and are not
# sent to servers; this hides a token that somebody put into the path, and that a proxy or an error repeats.
_LINK = re.compile(r"(/(?:approve|wall)/)#?[^\s\"'?&<>]+")


# What a reader of logs could take for the end of a line, and a terminal for a command or another direction of writing:
# messages quote texts of others.
_UNPRINTED = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printed(text: str) -> str:
    """Returns the text on one line, with its control characters written as Python writes them."""
    return _UNPRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Redacted(logging.Formatter):
    """Hides tokens of links in the message and in tracebacks. A message is one line, and tracebacks are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without tokens."""
        return _redacted(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns the line so that no text in it is another one."""
        return printed(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """Returns the traceback; what an error quotes begins no line."""
        return "\n".join(f"  {printed(line)}" for line in super().formatException(ei).split("\n"))


class JsonLine(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, process, the ids of the work, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the object as text without tokens."""
        error = record.exc_info[1] if record.exc_info else None
        line: dict[str, Any] = {
            **log_context.current(error),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _redacted(record.getMessage()),
            "process": record.process,
        }
        if record.exc_info:
            line["exception"] = _redacted(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = _redacted(record.stack_info)
        text = json.dumps(line, ensure_ascii=False, default=str)
        return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def configuration(chosen: str, reports: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the value of ``LOGGING`` for one of ``FORMATS``. The web servers' own loggers write the same lines.

    ``reports``: the arguments of the handler that reports errors; None: there is none.
    """
    reporting = {"reports": {"()": "kcover_portal.lib.error_reports.Handler", **reports}} if reports else {}
    passed_on = {"handlers": [], "propagate": True, "level": "WARNING"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "text": {"()": "kcover_portal.config.log_format.Redacted", "fmt": LINE},
            "json": {"()": "kcover_portal.config.log_format.JsonLine"},
        },
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": chosen}, **reporting},
        "root": {"handlers": ["console", *reporting], "level": "INFO"},
        "loggers": {
            # Celery sets the root's level to that of its option --loglevel, which is about Celery.
            "kcover_portal": {"level": "INFO"},
            "django.request": {"level": "ERROR"},
            "celery": {"level": "WARNING"},
            "kombu": {"level": "ERROR"},  # it warns of every memory:// connection
            **dict.fromkeys(("uvicorn", "uvicorn.access"), passed_on),
        },
    }


def _redacted(text: str) -> str:
    return _LINK.sub(r"\1…", text)
