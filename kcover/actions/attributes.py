"""Validators of the attributes of a policy's actions. Each returns why a value is invalid, or None if it is valid."""

import re
from urllib.parse import SplitResult, urlsplit

from kcover import reasons
from kcover.actions.spec import Refusal
from kcover.faults import fault
from kcover.reasons import Reason
from kcover.values import durations, masked_addresses
from kcover.values.kube_names import LABEL_KEY, LABEL_VALUE
from kcover.values.quote import short_repr, short_text

MAX_TEXT, MAX_URL = 500, 1000  # characters
CHANNEL_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SPACE = re.compile(r"[\s\x00-\x1f]")


def wait(value: str) -> Reason | None:
    """Validate a wait time."""
    try:
        durations.read(value)
    except durations.DurationError as error:
        return error.reason
    return None


def truth(name: str) -> Refusal:
    """Validator for "true" or "false"."""
    return lambda value: (
        None if value in ("true", "false") else reasons.of("truth_invalid", name=name, value=short_text(value))
    )


def one_of(name: str, choices: tuple[str, ...]) -> Refusal:
    """Validator for one of a few values."""
    return lambda value: (
        None
        if value in choices
        else reasons.of("choice_unknown", name=name, value=short_repr(value), known=", ".join(choices))
    )


def key(what: str) -> Refusal:
    """Validator for the key of a label or taint (``what``)."""
    return lambda value: (
        None if LABEL_KEY.fullmatch(value) else reasons.of("key_invalid", what=what, value=short_repr(value))
    )


def label_value(what: str) -> Refusal:
    """Validator for the value of a label or taint (``what``); ``<code>`` stands for the fault's code."""
    return lambda value: (
        None
        if LABEL_VALUE.fullmatch(value.replace("<code>", "0"))
        else reasons.of("text_invalid", what=what, value=short_repr(value))
    )


def channel(value: str) -> Reason | None:
    """Validate the name of a notification channel."""
    return None if CHANNEL_NAME.fullmatch(value) else reasons.of("channel_of_rule_invalid", value=short_repr(value))


def source(value: str) -> Reason | None:
    """Validate the name of a source; it has the form of a channel's."""
    return None if CHANNEL_NAME.fullmatch(value) else reasons.of("source_of_rule_invalid", value=short_repr(value))


def text(value: str) -> Reason | None:
    """Validate a message for people."""
    return None if 0 < len(value) <= MAX_TEXT else reasons.of("message_length", most=MAX_TEXT)


def url(value: str) -> Reason | None:
    """Validate the address of another system."""
    if len(value) > MAX_URL or SPACE.search(value):
        return reasons.of("address_length", most=MAX_URL)
    parts = web_address(value)
    if parts is None:
        return reasons.of("address_invalid", value=short_repr(value))
    if parts.username or parts.password:
        return reasons.of("address_password")
    if masked_addresses.MASK in value:
        return reasons.of("address_masked")
    return None


def check_names(value: str) -> Reason | None:
    """Validate names of health checks, separated by commas."""
    names = value.split(",")
    if all(fault.CODE_WORD.fullmatch(name) for name in names) and len(set(names)) == len(names):
        return None
    return reasons.of("check_list_invalid", value=short_repr(value))


def with_code(value: str, code: str) -> str:
    """A label value with the code inserted, cut to what Kubernetes accepts: 63 characters that begin and end with a
    letter or digit.
    """
    written = re.sub(r"[^A-Za-z0-9_.-]+", "_", value.replace("<code>", code))[:63]  # codes have other characters, too
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", written)


def web_address(value: str) -> SplitResult | None:
    """The parts of an HTTP or HTTPS address with a host and a valid port; None for anything else."""
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises ValueError if the port is invalid
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None
