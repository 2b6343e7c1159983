"""Replies by mail to the mails about a repair: whose repair they name, and what they say about it.

Only plain text is read. What a mail program quotes is dropped. Everything else is for the caller to check: that the
token is right, and that the sender may answer.
"""

import email
import email.errors
import email.policy
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from email.message import EmailMessage
from typing import Any, Final

from kcover import reasons
from kcover.repairs.ticket_text import one_line
from kcover.repairs.vendor_events import VendorEvent
from kcover.values.quote import short_text

MARK: Final = "===== kcover: write your reply above this line ====="
MAX_TEXT: Final = 20_000  # characters of the text that are read
MAX_COMMENT: Final = 300  # characters; the audit log has room for them and the sender
MAX_DETAIL: Final = 200
MAX_ADDRESS: Final = 254  # characters of the sender's address (RFC 5321)
# The standard library takes time in proportion to the square of some of these.
MAX_LINES: Final = 30_000
MAX_HEADER: Final = 2_000  # bytes of one header that is read, with its folded lines
MAX_PARTS, MAX_MULTIPARTS, MAX_BOUNDARIES, MAX_HEADERS = 100, 20, 500, 500
_HEADER: Final = re.compile(
    rb"^(?:content-[a-z-]+|from|subject|auto-submitted|precedence|return-path|message-id)[ \t]*:"
    rb"[^\n]*(?:\n[ \t][^\n]*)*",
    re.MULTILINE,
)
# Where Python and a mail server read different headers, and so different senders: a CR alone, and ``From :``.
_AMBIGUOUS: Final = re.compile(rb"\r(?!\n)|^from[ \t]+:", re.IGNORECASE | re.MULTILINE)
_ENDED_EARLY: Final = (email.errors.MissingHeaderBodySeparatorDefect, email.errors.MisplacedEnvelopeHeaderDefect)
TOKEN: Final = re.compile(r"\[kcover (\d{1,18})\.([a-z2-7]{26})\]", re.IGNORECASE)
# A mail program quotes from here on.
_QUOTED: Final = re.compile(
    r"-{3,} ?(original message|forwarded message|原始邮件|转发邮件信息) ?-{3,}|_{10,}|-- "
    r"|on .{5,300} wrote:|在.{5,300}写道[:：]",
    re.IGNORECASE,
)
_DETAIL: Final = re.compile(r"(ticket|due|owner|action|serial|machine serial)[ \t]*[:：][ \t]*(\S.*)", re.IGNORECASE)
_AUTOMATIC: Final = frozenset({"auto_reply", "bulk", "junk", "list"})  # of the header Precedence
_BROKEN: Final = (
    *(email.errors.MessageError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError),
)


class ReplyInvalid(reasons.ExplainedError):
    """The mail is no reply that the portal can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply. ``sender``: its address in lower case; ``details``: as vendors name them; ``name``: its Message-ID."""

    sender: str
    repair: int
    token: str
    name: str
    event: VendorEvent
    comment: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


def read(data: bytes) -> Reply:
    """Reads a mail (RFC 5322). Raises ReplyInvalid."""
    if not _is_simple(data) or _AMBIGUOUS.search(re.split(rb"\r?\n\r?\n", data, maxsplit=1)[0]):
        raise ReplyInvalid(reasons.of("mail_unreadable"))
    try:
        message = email.message_from_bytes(data, _class=EmailMessage, policy=email.policy.default)
        return _read(message)
    except ReplyInvalid:
        raise
    except _BROKEN as error:  # the standard library does not expect every header that the world sends
        raise ReplyInvalid(reasons.of("mail_unreadable")) from error


def _is_simple(data: bytes) -> bool:
    """False for a mail whose structure no mail program makes, and that would take long to read."""
    lower = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").lower()
    headers = [len(found[0]) for found in _HEADER.finditer(lower)]
    return (
        lower.count(b"\n") <= MAX_LINES
        and lower.count(b"\n--") <= MAX_BOUNDARIES
        and lower.count(b"content-type") <= MAX_PARTS
        and lower.count(b"multipart/") <= MAX_MULTIPARTS
        and len(headers) <= MAX_HEADERS
        and max(headers, default=0) <= MAX_HEADER
    )


def _read(message: EmailMessage) -> Reply:
    if any(isinstance(one, _ENDED_EARLY) for one in message.defects):
        raise ReplyInvalid(reasons.of("mail_unreadable"))
    sender = _sender(message)
    if _is_automatic(message):
        raise ReplyInvalid(reasons.of("mail_automatic"))
    found = set(TOKEN.findall(str(message["Subject"]))) if len(_raw(message, "subject")) == 1 else set()
    if len(found) != 1:
        raise ReplyInvalid(reasons.of("mail_token_missing"))
    [(repair, token)] = found
    event, details, comment = said(_text(message))
    return Reply(
        sender=sender,
        repair=int(repair),
        token=token.lower(),
        name=str(message.get("Message-ID", "")).strip(),
        event=event,
        details=details,
        comment=comment,
    )


def _sender(message: EmailMessage) -> str:
    if len(_raw(message, "from")) != 1:  # to parse many headers takes minutes
        raise ReplyInvalid(reasons.of("mail_sender_missing"))
    addresses = [one.addr_spec for one in message["From"].addresses]
    if len(addresses) != 1 or not _is_plain(addresses[0]) or _is_ambiguous(message, addresses[0]):
        raise ReplyInvalid(reasons.of("mail_sender_missing"))
    return str(addresses[0]).lower()


def _raw(message: EmailMessage, header: str) -> list[str]:
    """The values of a header, not parsed."""
    return [str(value) for name, value in message.raw_items() if name.lower() == header]


def _is_plain(address: str) -> bool:
    """False for an address that no log and no database should get: too long, or with control characters."""
    return "@" in address and len(address) <= MAX_ADDRESS and address.isprintable()


def _is_ambiguous(message: EmailMessage, address: str) -> bool:
    """Returns whether another program may read another sender in the header: of ``a@x <b@y>`` Python takes the first.

    The mail server checks the sender that it reads (DMARC). A quoted, encoded name is a frequent fault and harmless.
    """
    if not any(isinstance(one, email.errors.InvalidHeaderDefect) for one in message["From"].defects):
        return False
    [raw] = _raw(message, "from")
    return re.fullmatch(rf'\s*"[^"<>@\\]*"\s*<{re.escape(address)}>\s*', raw) is None


def _is_automatic(message: EmailMessage) -> bool:
    """True for answers of programs, such as an absence note or a report of non-delivery (RFC 3834)."""
    submitted = str(message.get("Auto-Submitted", "no")).split(";")[0].strip().lower()
    precedence = str(message.get("Precedence", "")).strip().lower()
    empty_path = str(message.get("Return-Path", "")).strip() == "<>"
    report = message.get_content_type() == "multipart/report"
    return submitted != "no" or precedence in _AUTOMATIC or empty_path or report or "X-Autoreply" in message


def _text(message: EmailMessage) -> str:
    """The plain text. Raises ReplyInvalid."""
    part = message.get_body(preferencelist=("plain",))
    text = part.get_content() if part is not None else None
    if not isinstance(text, str):
        raise ReplyInvalid(reasons.of("mail_without_text"))
    return text[:MAX_TEXT]


def said(text: str) -> tuple[VendorEvent, dict[str, Any], str]:
    """The event, its details and the comment of a reply's text. Raises ReplyInvalid.

    The first line may be the name of an event. Lines such as ``Ticket: RMA-7`` may follow. The rest is the comment.
    """
    lines = _own_lines(text)
    first = lines[0].rstrip(".!").casefold().replace(" ", "-") if lines else ""
    if first not in {event.value for event in VendorEvent}:
        return VendorEvent.COMMENT, {}, _comment(lines, VendorEvent.COMMENT, {})
    event, rest = VendorEvent(first), lines[1:]
    details: dict[str, Any] = {}
    while rest and (found := _DETAIL.fullmatch(rest[0])):
        details |= _detail(found[1].lower(), one_line(_without_tokens(found[2]), most=MAX_DETAIL))
        rest = rest[1:]
    return event, details, _comment(rest, event, details)


def _own_lines(text: str) -> list[str]:
    """The lines that the sender wrote, without empty ones."""
    found: list[str] = []
    lines = text.splitlines()
    for line, following in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        wrapped = f"{line.strip()} {following.strip()}".strip()  # mail programs break "On … wrote:" into two lines
        if MARK in line or any(map(_QUOTED.fullmatch, (line, line.strip(), wrapped))):
            break
        if line.strip() and not line.lstrip().startswith(">"):
            found.append(line.strip())
    return found


def _without_tokens(text: str) -> str:
    """The text without the tokens of a quoted subject: everybody who sees the repair can read it, other vendors too."""
    return TOKEN.sub(r"[kcover \1]", text)


def _comment(lines: list[str], event: VendorEvent, details: Mapping[str, Any]) -> str:
    comment = one_line(_without_tokens(" ".join(lines)), most=MAX_COMMENT)
    needed = event in (VendorEvent.COMMENT, VendorEvent.REFUSE) or (event is VendorEvent.UPDATE and not details)
    if needed and not comment:
        raise ReplyInvalid(reasons.of("mail_empty", event=event.value))
    return comment


def _detail(label: str, value: str) -> dict[str, Any]:
    """The detail as vendors name it."""
    match label:
        case "due":
            return {"due": _due(value)}
        case "owner":
            return {"assignee": value}
        case "serial":
            return {"part": {"serial": value}}
        case "machine serial":
            return {"machine": {"serial": value}}
    return {label: value}


def _due(value: str) -> datetime:
    """The end of the day in UTC, or the time with its zone. Raises ReplyInvalid."""
    try:
        if len(value) == len("2026-12-01"):
            return datetime.combine(date.fromisoformat(value), time(23, 59, 59), UTC)
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ReplyInvalid(reasons.of("mail_due_invalid", value=short_text(value))) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
