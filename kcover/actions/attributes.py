"""What refuses the value of an action's attribute in a policy: each returns why, or None where the value is taken."""

import re
from urllib.parse import SplitResult, urlsplit

from kcover import durations
from kcover.actions.spec import Refusal
from kcover.faults import fault
from kcover.kube_names import LABEL_KEY, LABEL_VALUE
from kcover.quote import short_repr, short_text

MAX_TEXT, MAX_URL = 500, 1000  # characters
CHANNEL_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SPACE = re.compile(r"[\s\x00-\x1f]")


def wait(value: str) -> str | None:
    """A wait in KCE's grammar."""
    try:
        durations.parse(value)
    except durations.DurationError as error:
        return str(error)
    return None


def truth(name: str) -> Refusal:
    """ "true" or "false"."""
    return lambda value: (
        None if value in ("true", "false") else f'{name} must be "true" or "false", not "{short_text(value)}"'
    )


def one_of(name: str, choices: tuple[str, ...]) -> Refusal:
    """One of a few words."""
    return lambda value: (
        None if value in choices else f"unknown {name} {short_repr(value)}: use one of {', '.join(choices)}"
    )


def key(what: str) -> Refusal:
    """The key of a label or a taint."""
    return lambda value: None if LABEL_KEY.fullmatch(value) else f"{short_repr(value)} is no {what} key"


def label_value(what: str) -> Refusal:
    """The value of a label or a taint; ``<code>`` stands for the fault's code."""
    return lambda value: (
        None if LABEL_VALUE.fullmatch(value.replace("<code>", "0")) else f"{short_repr(value)} is no {what} value"
    )


def channel(value: str) -> str | None:
    """The name of a notification channel."""
    return (
        None
        if CHANNEL_NAME.fullmatch(value)
        else f'{short_repr(value)} is no name of a channel: write "on-call" for example'
    )


def text(value: str) -> str | None:
    """A message to people."""
    return None if 0 < len(value) <= MAX_TEXT else f"a message has 1 to {MAX_TEXT} characters"


def url(value: str) -> str | None:
    """The address of another system."""
    example = "write https://repair.example/hook for example"
    if len(value) > MAX_URL or SPACE.search(value):
        return f"an address has at most {MAX_URL} characters and no spaces: {example}"
    parts = web_address(value)
    if parts is None:
        return f"{short_repr(value)} is no address: {example}"
    if parts.username or parts.password:
        return "no password in an address: everybody who reads the policy would read it"
    return None


def check_names(value: str) -> str | None:
    """Names of health checks, with commas between them."""
    names = value.split(",")
    if all(fault.CODE_WORD.fullmatch(name) for name in names) and len(set(names)) == len(names):
        return None
    example = 'write their names with commas and no spaces, "pciebw,remapped" for example'
    return f"{short_repr(value)} is no list of checks: {example}"


def with_code(value: str, code: str) -> str:
    """A label's value with the code in it, cut to what Kubernetes takes: 63 characters, the ends letters or digits."""
    written = value.replace("<code>", code)[:63]
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", written)


def web_address(value: str) -> SplitResult | None:
    """The parts of an HTTP or HTTPS address with a host and a valid port; None for anything else."""
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - raises ValueError where it is no port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and parts.hostname else None
