"""Sends errors to Sentry: each log line of level ERROR, with its ids and the place of its error, and nothing else.

A report has no message of an error, no values of variables, no requests and no person: they may hold secrets, or what
users wrote. The log line of the same ids has them. Only the settings name this module, and only if Sentry is on.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import sentry_sdk
from sentry_sdk.utils import event_from_exception

from kcover.reasons import ExplainedError
from kcover_portal.config import log_context, telemetry_settings

STOP_SECONDS: Final = 2.0  # for what is left when the process ends
_OWN: Final = ("kcover_portal", "kcover")  # their log messages are constants, and arguments are separate


class Handler(logging.Handler):
    """Sends records to the Sentry project of this DSN, in a thread of its own. Drops them while Sentry is away."""

    def __init__(self, dsn: str, environment: str) -> None:
        super().__init__(logging.ERROR)
        self._client = sentry_sdk.Client(
            dsn,
            environment=environment,
            release=telemetry_settings.release(),
            # Integrations read requests, users and arguments.
            default_integrations=False,
            auto_enabling_integrations=False,
            include_local_variables=False,
            max_request_body_size="never",
            max_breadcrumbs=0,
            auto_session_tracking=False,
            send_client_reports=False,
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Queues the report of the record."""
        try:
            self._client.capture_event(self._event(record))
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Sends what is left, for a moment."""
        self._client.close(timeout=STOP_SECONDS)
        super().close()

    def _event(self, record: logging.LogRecord) -> Any:
        error = record.exc_info[1] if record.exc_info else None
        tags = {name: str(value) for name, value in log_context.current(error).items()}
        event: dict[str, Any] = {"level": record.levelname.lower(), "logger": record.name}
        if error is not None:
            found, _hint = event_from_exception(error, client_options=self._client.options)
            event["exception"] = {"values": [_without_texts(one) for one in found["exception"]["values"]]}
        if isinstance(error, ExplainedError):
            tags["reason"] = error.reason.code
        return event | {"tags": tags, "logentry": {"message": _message(record)}}


def _without_texts(error: Mapping[str, Any]) -> dict[str, Any]:
    """The type and the place of an error in Sentry's form."""
    return {name: error[name] for name in ("type", "module", "stacktrace") if error.get(name) is not None}


def _message(record: logging.LogRecord) -> str:
    """The message without its arguments.

    For messages of other packages without arguments, which may contain values: the logger and function.
    """
    if record.args or record.name.partition(".")[0] in _OWN:
        return str(record.msg)
    return f"{record.name}: {record.funcName}"
