"""The options of sinks: which a kind has, and what their values look like."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from kcover import reasons
from kcover.repairs import jira
from kcover.values.quote import short_repr
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import vendors
from kcover_portal.lib.errors import FieldError

LONGEST_OPTION, LONGEST_VENDOR, LONGEST_LIST = 200, 120, 1000
VENDOR: Final = "vendor"  # whose events the portal takes, signed with a key that is derived from the secret
STATES: Final = "states"
SENDERS: Final = "senders"  # who may answer by mail
ANSWERING: Final = frozenset((VENDOR, STATES, SENDERS, "incoming_secret"))  # a sink with one of these takes answers
PROJECT: Final = re.compile(r"[A-Z][A-Z0-9_]{1,59}")
LABELS: Final = re.compile(r"[^\s\"'\\]{1,100}( +[^\s\"'\\]{1,100}){0,9}")
HEADER: Final = re.compile(r"[!-~]*")
# Of each kind, beside ``vendors``, which all have.
OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    Sink.Kind.LOKI: ("tenant", "user"),
    Sink.Kind.BUCKET: ("region",),
    Sink.Kind.JIRA: ("project", "user", "issue_type", "labels", "close_transition", STATES),
    Sink.Kind.MAIL: ("reply_to", SENDERS),
    **dict.fromkeys(Sink.WEBHOOKS, (VENDOR,)),
}
REQUIRED: Final[Mapping[str, Mapping[str, str]]] = {Sink.Kind.JIRA: {"project": "OPS"}}  # with an example
LISTS: Final = (vendors.VENDORS, STATES, SENDERS)


def known(kind: str) -> tuple[str, ...]:
    """The options of a kind of sink."""
    return (*OF_KIND.get(kind, ()), vendors.VENDORS)


def check(row: Sink) -> None:
    """Raises FieldError for an unknown option or a wrong value. Drops those without a value."""
    names = known(row.kind)
    for name, value in row.options.items():
        if name not in names:
            raise FieldError("options", reasons.of("option_unknown", name=repr(name), known=", ".join(names)))
        CHECKS.get(name, _check_header)(name, value)
    row.options = {name: value for name, value in sorted(row.options.items()) if value}
    for name, example in REQUIRED.get(row.kind, {}).items():
        if name not in row.options:
            raise FieldError("options", reasons.of("option_missing", name=name, example=example))


def longest(name: str) -> int:
    """The most characters of an option's value."""
    return LONGEST_LIST if name in LISTS else LONGEST_OPTION


def _check_header(name: str, value: Any) -> None:
    """For values that are sent as HTTP headers."""
    if not isinstance(value, str) or len(value) > LONGEST_OPTION or not HEADER.fullmatch(value):
        raise FieldError("options", reasons.of("option_invalid", name=name, most=LONGEST_OPTION))


def _check_vendor(name: str, value: Any) -> None:
    """For the name of a vendor, as repairs have it; "" is none."""
    fits = isinstance(value, str) and len(value) <= LONGEST_VENDOR and (value == value.strip() and value.isprintable())
    if not fits:
        raise FieldError("options", reasons.of("repair_name_invalid", name=name, most=LONGEST_VENDOR))


def _check_vendors(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_LIST:
        raise FieldError("options", reasons.of("repair_name_invalid", name=name, most=LONGEST_LIST))
    for one in vendors.names(value):
        _check_vendor(name, one)


def _check_text(name: str, value: Any) -> None:
    """For names of Jira."""
    if not _is_text(value) or value != value.strip() or not value.isprintable():
        raise FieldError("options", reasons.of("option_text_invalid", name=name, most=LONGEST_OPTION))


def _check_project(_name: str, value: Any) -> None:
    if not _is_text(value) or not (value == "" or PROJECT.fullmatch(value)):
        raise FieldError("options", reasons.of("jira_project_invalid"))


def _check_labels(_name: str, value: Any) -> None:
    if not _is_text(value) or not (value == "" or LABELS.fullmatch(value)):
        raise FieldError("options", reasons.of("jira_labels_invalid", most=LONGEST_OPTION))


def _check_states(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_LIST:
        raise FieldError("options", reasons.of("option_text_invalid", name=name, most=LONGEST_LIST))
    try:
        jira.read_states(value)
    except jira.StatesInvalid as error:
        raise FieldError("options", error.reason) from error


def check_address(field: str, value: str) -> None:
    """Raises FieldError unless the value is an address of e-mail."""
    try:
        validate_email(value)
    except ValidationError as error:
        raise FieldError(field, reasons.of("recipient_invalid", address=repr(value))) from error


def _check_reply_to(_name: str, value: Any) -> None:
    if not _is_text(value):
        raise FieldError("options", reasons.of("recipient_invalid", address=short_repr(value)))
    if value:
        check_address("options", value)


def _check_senders(name: str, value: Any) -> None:
    """For addresses of e-mail, and domains as ``@acme.example``."""
    if not isinstance(value, str) or len(value) > LONGEST_LIST:
        raise FieldError("options", reasons.of("option_text_invalid", name=name, most=LONGEST_LIST))
    for one in filter(None, (one.strip() for one in value.split(";"))):
        check_address("options", f"a{one}" if one.startswith("@") else one)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_OPTION


CHECKS: Final[Mapping[str, Callable[[str, Any], None]]] = {
    VENDOR: _check_vendor,
    vendors.VENDORS: _check_vendors,
    "project": _check_project,
    "issue_type": _check_text,
    "close_transition": _check_text,
    "labels": _check_labels,
    STATES: _check_states,
    "reply_to": _check_reply_to,
    SENDERS: _check_senders,
}
