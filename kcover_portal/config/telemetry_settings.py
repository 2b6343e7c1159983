"""The settings of traces (OpenTelemetry) and error reports (Sentry): their environment variables and their values."""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kcover_portal.config import setting_values, version
from kcover_portal.config.setting_values import Variable

TRACES_PATH = "/v1/traces"  # of the protocol, OTLP over HTTP
HEADER = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([\x21-\x2b\x2d-\x7e](?:[\x20-\x2b\x2d-\x7e]*[\x21-\x2b\x2d-\x7e])?)"
)


def _headers(text: str) -> dict[str, str]:
    found = [HEADER.fullmatch(part.strip()) for part in text.split(",") if part.strip()]
    if not all(found):
        raise ValueError
    return {one[1]: one[2] for one in found if one is not None}


def _dsn(text: str) -> str:
    """A DSN as Sentry's project settings show it: its user is the public key, its path ends with the project's id."""
    parts = urlsplit(setting_values.web_call(text))
    if text and (not parts.username or not parts.path.rpartition("/")[2].isdigit()):
        raise ValueError
    return text


VARIABLES = (
    Variable(
        "KCOVER_TRACES",
        setting_values.web,
        "",
        f"http://HOST:4318 or https://HOST; {TRACES_PATH} is appended",
        "an OpenTelemetry collector that receives [traces](telemetry.md); empty: none",
    ),
    Variable(
        "KCOVER_TRACES_HEADERS",
        _headers,
        "",
        "NAME=VALUE, separated by commas",
        "headers of the calls to it, such as its credentials",
        secret=True,
    ),
    Variable(
        "KCOVER_TRACES_PERCENT",
        setting_values.count(100),
        "100",
        "1 to 100",
        "the share of incidents that are traced, each as a whole",
    ),
    Variable(
        "KCOVER_SENTRY_DSN",
        _dsn,
        "",
        "https://KEY@HOST/PROJECT",
        "a Sentry project that receives [errors](telemetry.md#errors); empty: none",
        secret=True,
    ),
    Variable(
        "KCOVER_SENTRY_ENVIRONMENT",
        setting_values.checked(re.compile(r"[A-Za-z0-9._-]{1,64}").fullmatch),
        "production",
        "letters, digits, dots, _ and -",
        "the environment of these errors in Sentry",
    ),
)


class TelemetryUnavailable(ValueError):
    """A setting needs packages that are not installed; the message names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Where traces are sent. ``percent``: of incidents."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    percent: int = 100


def traces(values: Mapping[str, Any]) -> Traces | None:
    """Returns the settings of traces; None if they are off. Raises TelemetryUnavailable."""
    url = values["KCOVER_TRACES"]
    if not url:
        return None
    _require("KCOVER_TRACES", "opentelemetry.exporter.otlp.proto.http", extra="otel")
    whole = url if url.endswith(TRACES_PATH) else f"{url}{TRACES_PATH}"
    return Traces(url=whole, headers=values["KCOVER_TRACES_HEADERS"], percent=values["KCOVER_TRACES_PERCENT"])


def sentry(values: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the arguments of ``error_reports.Handler``; None if reports are off. Raises TelemetryUnavailable."""
    if not values["KCOVER_SENTRY_DSN"]:
        return None
    _require("KCOVER_SENTRY_DSN", "sentry_sdk", extra="sentry")
    return {"dsn": values["KCOVER_SENTRY_DSN"], "environment": values["KCOVER_SENTRY_ENVIRONMENT"]}


def release() -> str:
    """The version of the installed portal, or "source" in a checkout."""
    return version.installed() or "source"


def _require(setting: str, module: str, *, extra: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a parent of the module
        found = None
    if found is None:
        raise TelemetryUnavailable(f"{setting} needs packages that are missing: pip install 'kcover-portal[{extra}]'")
