"""What each kind of sink needs: its address, its secret and its options."""

import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from kcover import reasons
from kcover.actions import attributes
from kcover_portal import encryption
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import vendor_signatures
from kcover_portal.audit_stream.senders import syslog
from kcover_portal.audit_stream.services import options
from kcover_portal.lib.errors import FieldError

SHORTEST_SECRET, LONGEST_SECRET = 16, 1000
MAX_RECIPIENTS: Final = 20
FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
BUCKET_KEY: Final = re.compile(r"[^\s:]{1,128}:\S{1,256}")  # ACCESS_KEY:SECRET_KEY
TOKEN: Final = re.compile(r"[!-~]+")
KINDS_WITH_SECRET: Final = (*sorted(Sink.WEBHOOKS), Sink.Kind.LOKI, Sink.Kind.BUCKET, Sink.Kind.JIRA)
KINDS_WITH_INCOMING: Final = (Sink.Kind.JIRA, Sink.Kind.MAIL)  # what arrives is signed with a secret of its own
SHAPES: Final[Mapping[str, re.Pattern[str]]] = {Sink.Kind.BUCKET: BUCKET_KEY, Sink.Kind.JIRA: TOKEN}  # of the secret
WRONG_SHAPE: Final[Mapping[str, reasons.Reason]] = {
    Sink.Kind.BUCKET: reasons.of("sink_bucket_key_invalid"),
    Sink.Kind.JIRA: reasons.of("jira_token_invalid", most=LONGEST_SECRET),
}


def check(row: Sink) -> None:
    """Raises FieldError unless address, secret and options fit the kind of the sink."""
    options.check(row)
    _check_address(row)
    _check_secret(row)
    if row.kind == Sink.Kind.MAIL and encryption.is_set(row, "incoming_key") and not row.options.get(options.SENDERS):
        raise FieldError("options", reasons.of("option_missing", name=options.SENDERS, example="@acme.example"))


def _check_address(row: Sink) -> None:
    match row.kind:
        case Sink.Kind.FILE:
            if settings.KCOVER_AUDIT_FOLDER is None:
                raise FieldError("kind", reasons.of("sink_folder_unset"))
            if not FILE.fullmatch(row.address):
                raise FieldError("address", reasons.of("sink_file_invalid"))
        case Sink.Kind.SYSLOG:
            if syslog.address(row.address) is None:
                raise FieldError("address", reasons.of("sink_syslog_invalid"))
        case Sink.Kind.MAIL:
            _check_recipients(row)
        case _:
            _check_url(row)


def _check_recipients(row: Sink) -> None:
    """Raises FieldError."""
    if not settings.EMAIL_HOST:
        raise FieldError("kind", reasons.of("mail_unset"))
    recipients = [one.strip() for one in row.address.split(",")]
    if len(recipients) > MAX_RECIPIENTS:
        raise FieldError("address", reasons.of("recipients_count", most=MAX_RECIPIENTS))
    for one in recipients:
        options.check_address("address", one)


def _check_url(row: Sink) -> None:
    """Raises FieldError. ``outgoing`` checks the resolved address at each call."""
    url = row.address
    parts = attributes.web_address(url)
    if parts is None or re.search(r"[\s\x00-\x1f]", url):
        raise FieldError("address", reasons.of("url_invalid"))
    if parts.username or parts.password:
        raise FieldError("address", reasons.of("url_with_password"))
    if row.kind not in Sink.WEBHOOKS and (parts.query or parts.fragment):  # the portal appends its own path
        raise FieldError("address", reasons.of("url_with_query"))
    if row.kind == Sink.Kind.BUCKET and not urlsplit(url).path.strip("/"):
        raise FieldError("address", reasons.of("sink_bucket_invalid", example="https://s3.example/records"))


def set_incoming_key(row: Sink, *, given: Collection[str]) -> None:
    """Makes the key that checks the vendor's events, if the secret or the options are given.

    Raises FieldError if the secret is needed, and only the engine's processes can read it: it must be given again.
    """
    if row.kind in KINDS_WITH_INCOMING:
        return
    if not row.options.get(options.VENDOR):
        row.incoming_key = ""
    elif "secret" in given or not encryption.is_set(row, "incoming_key"):
        if encryption.is_out_of_reach(row, "secret"):
            raise FieldError("secret", reasons.of("secret_for_vendor"))
        row.incoming_key = vendor_signatures.key_of(row.secret)


def check_incoming_secret(row: Sink, value: str) -> None:
    """Raises FieldError unless the value can be the secret of what arrives; "": nothing is accepted."""
    if value and row.kind not in KINDS_WITH_INCOMING:
        raise FieldError("incoming_secret", reasons.of("incoming_secret_unused", kind=row.kind))
    if value and len(value) < SHORTEST_SECRET:
        length = reasons.of("secret_length", least=SHORTEST_SECRET, most=LONGEST_SECRET)
        raise FieldError("incoming_secret", length)


def _check_secret(row: Sink) -> None:
    if encryption.is_out_of_reach(row, "secret"):  # it was checked when it was given
        return
    if row.kind in Sink.WEBHOOKS:
        if len(row.secret) < SHORTEST_SECRET:
            raise FieldError("secret", reasons.of("secret_length", least=SHORTEST_SECRET, most=LONGEST_SECRET))
    elif row.kind == Sink.Kind.LOKI:
        if not options.HEADER.fullmatch(row.secret):
            raise FieldError("secret", reasons.of("option_invalid", name="secret", most=LONGEST_SECRET))
        if row.options.get("user") and not row.secret:
            raise FieldError("secret", reasons.of("secret_missing_for_user"))
    elif row.kind in SHAPES:
        if not SHAPES[row.kind].fullmatch(row.secret):
            raise FieldError("secret", WRONG_SHAPE[row.kind])
    elif row.secret:
        raise FieldError("secret", reasons.of("secret_unused", kind=row.kind))
