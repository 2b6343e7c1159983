"""Reads the text of an environment variable. Each function raises ValueError or KeyError for an invalid text."""

import hashlib
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable. ``read`` raises ValueError or KeyError for an invalid text."""

    name: str
    read: Callable[[str], object]
    default: str
    accepts: str
    about: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Reads one of these texts. The chart offers the same ones."""

    texts: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Returns the text. Raises ValueError for another one."""
        if text not in self.texts:
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class Count:
    """Reads a whole number from ``least`` to ``most``. The chart has the same limits."""

    least: int
    most: int

    def __call__(self, text: str) -> int:
        """Returns the number. Raises ValueError for another text."""
        number = int(text)
        if not self.least <= number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 bucket. ``key``: ACCESS_KEY:SECRET_KEY. ``days``: for which its objects are locked."""

    url: str
    key: str = field(repr=False)
    region: str
    days: int


def web(text: str) -> str:
    """A base URL for browsers and programs. Paths are appended to it, so it must not have a query."""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or parts.query):
        raise ValueError
    return text.rstrip("/")


def site(text: str) -> str:
    """The URL of a site of its own: no path, because the portal's pages begin at the root."""
    if urlsplit(text).path.strip("/"):
        raise ValueError
    return web(text)


def web_call(text: str) -> str:
    """The URL of a call to another system, with its query."""
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0):
        raise ValueError
    return text


def dashboard(text: str) -> str:
    """The template of a link to a dashboard. Placeholders stand behind the host, so that no name can change it."""
    if not text:
        return text
    parts = urlsplit(web_call(text))
    names = set(re.findall(r"\{([^{}]*)\}", text))
    if parts.username is not None or "{" in parts.netloc or not names <= {"cluster", "node", "from", "to"}:
        raise ValueError
    if not text.isascii() or not text.isprintable() or " " in text or len(text) > 2000:
        raise ValueError
    return text


def bucket(text: str) -> str:
    """The address of an S3 bucket, with a prefix of its objects or without."""
    parts = urlsplit(web(text))
    if text and (parts.username is not None or parts.fragment or not parts.path.strip("/")):
        raise ValueError
    return text.rstrip("/")


def issuer(text: str) -> str:
    """The identifier of an OpenID Connect provider, kept as written: tokens repeat it exactly."""
    if text and not is_secure(text):
        raise ValueError
    return text


def is_secure(url: str) -> bool:
    """Returns whether the URL is https without credentials and fragment, or http to a loopback address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host or parts.username is not None or parts.fragment or parts.port == 0:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and (host == "localhost" or _is_loopback(host)))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(text.split())
    if "openid" not in scopes:
        raise ValueError
    return scopes


def line(most: int) -> Callable[[str], str]:
    """A text of one line."""
    return checked(lambda text: len(text) <= most and (not text or text.isprintable()))


def database(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in DATABASES or len(parts.path) < 2 or parts.port == 0:
        raise ValueError
    if parts.scheme == "sqlite" and (parts.netloc or parts.path.endswith((":memory:", "/"))):
        raise ValueError
    return text


def anchor_file(read: Mapping[str, object], *, var: Path) -> Path | None:
    """The configured file, or one in ``var`` for each database, so that a new database has no old anchor."""
    text = str(read["KCOVER_ANCHOR"])
    if text:
        return None if text == "none" else var.parent / text
    parts = urlsplit(str(read["KCOVER_DATABASE_URL"]))
    place = f"{parts.hostname}:{parts.port}{parts.path}" if parts.hostname else str(var.parent / parts.path[1:])
    return var / "anchors" / f"{hashlib.sha256(place.encode()).hexdigest()[:12]}.jsonl"


def anchor_bucket(read: Mapping[str, object]) -> Bucket | None:
    """The configured bucket; None without one."""
    url, key, region, days = (read[f"KCOVER_ANCHOR_S3{part}"] for part in ("", "_KEY", "_REGION", "_DAYS"))
    return Bucket(str(url), str(key), str(region), int(str(days))) if url else None


def redis(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("redis", "rediss", "unix") or parts.port == 0):
        raise ValueError
    if text and not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise ValueError
    return text


def mail(text: str) -> str:
    """A mail server; without a port, the default port of the scheme."""
    parts = urlsplit(text)
    if text and (parts.scheme not in MAIL_PORTS or not parts.hostname or parts.port == 0 or parts.path.strip("/")):
        raise ValueError
    return text


def checked(is_valid: Callable[[str], object]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not is_valid(text):
            raise ValueError
        return text

    return read


def secret_key(text: str) -> str:
    """A random text that cannot be guessed; "" is allowed."""
    if text and (len(text) < 32 or len(set(text)) < 8):
        raise ValueError
    return text


def secret_keys(text: str) -> list[str]:
    return [secret_key(key) for key in text.split()]


def programs(text: str) -> list[str]:
    return [program.strip() for program in text.split(",") if program.strip()]


def zone(text: str) -> str:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError from error
    return text


def switch(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False, "": False}[text.lower()]


def hosts(text: str) -> list[str]:
    hosts = [host.strip() for host in text.split(",") if host.strip()]
    if not hosts or not all(HOST.fullmatch(host) for host in hosts):
        raise ValueError
    return hosts


def accounts(text: str) -> list[str]:
    accounts = [account.strip() for account in text.split(",") if account.strip() and text != "none"]
    if not all(ACCOUNT.fullmatch(account) for account in accounts):
        raise ValueError
    return accounts


def networks(text: str) -> list[IPv4Network | IPv6Network]:
    return [ip_network(part.strip()) for part in text.split(",") if part.strip() and text != "none"]


def tests(text: str) -> list[str]:
    tests = [test.strip() for test in text.split(",") if text != "none"]
    if not all(TEST.fullmatch(test) for test in tests):
        raise ValueError
    return tests


def count(most: int, *, least: int = 1) -> Count:
    return Count(least=least, most=most)


HOST = re.compile(r"\*|\.?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\]")
ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252}")
TEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,60}")
MAILBOX = re.compile(r"[^\s@<>]+@[^\s@<>]+|[^<>@\r\n]+ <[^\s@<>]+@[^\s@<>]+>")
SECOND_FACTOR = ("off", "approvers", "all")
MAIL_PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}
PRIVATE_NETWORKS = "127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,::1,fc00::/7"
API_DOCS = ("signed-in", "public", "off")
DATABASES = ("sqlite", "postgres", "postgresql")
