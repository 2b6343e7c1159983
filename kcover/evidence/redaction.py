"""Removes secrets and user data from the text of evidence, line by line, before it leaves the node.

What is removed is replaced by its kind in brackets, such as ``[removed: password]``, so that a reader sees that it was
there. What identifies hardware stays: serial numbers, UUIDs, PCI and MAC addresses, private IP addresses, and the names
of the node and of programs. ``docs/operations/repair/evidence.md`` lists the rules for operators.
"""

import functools
import re
from collections.abc import Callable

MAX_LINE_CHARACTERS = 4096  # the rest of a longer line is cut; a kernel record has at most 8 KiB
MAX_KEY_LINES = 200  # of a private key; a key whose end is missing does not take the rest of the text with it

# A name that ends with, or is, one of these words is followed by a secret: password=..., HF_TOKEN: ..., --api-key x.
_SECRET_NAMES = (
    r"(?:[\w.-]{0,40}(?:pass(?:word|wd|phrase|code)|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key"
    r"|encryption[-_]?key|credentials?|authorization|cookie|session[-_]?id|ssh[-_]?key|accountkey))"
)
_IS = r"[\"']?\s*[=:]\s*"
# Names, and options of which the value follows after a space, that stand where the value of a secret is looked for.
_MORE_NAMES = rf"(?:-{{0,2}}{_SECRET_NAMES}{_IS}|-{{1,2}}{_SECRET_NAMES}\s+(?=\S))*"
_QUOTED_OR_WORD = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&\"']+)"
_PEM_BEGIN, _PEM_END = re.compile(r"-----BEGIN [A-Z0-9 ]*KEY( BLOCK)?-----"), re.compile(r"-----END [A-Z0-9 ]*KEY")
_IPV4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)"
_VERSION_WORDS = ("ersion", "irmware", "bios", "BIOS", "driver", "Driver", "inforom", "Inforom", "release")

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


class Redactor:
    """Redacts one text. It has state, because a private key spans several lines."""

    def __init__(self) -> None:
        self._key_lines = 0  # that may follow of a private key

    def line(self, text: str) -> str:
        """The line without secrets and user data. It has no end of line, before and after."""
        if self._key_lines:
            self._key_lines = 0 if _PEM_END.search(text) else self._key_lines - 1
            return "[removed: private key]"
        begin = _PEM_BEGIN.search(text)
        if begin is not None:
            self._key_lines = 0 if _PEM_END.search(text, begin.end()) else MAX_KEY_LINES
            text = f"{text[: begin.start()]}[removed: private key]"
        text = _printable(text[:MAX_LINE_CHARACTERS])
        for pattern, replacement in _rules():
            text = pattern.sub(replacement, text)
        return text if any(word in text for word in _VERSION_WORDS) else _without_public_addresses(text)


@functools.cache
def _rules() -> tuple[Rule, ...]:
    """The rules in their order. They are compiled at the first use: an agent seldom needs them."""
    return (
        # Credentials in URLs, before the rules that would take a part of the URL.
        (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,15}://)[^\s/@\"']+@"), r"\1[removed: credentials]@"),
        (re.compile(r"(?i)\b(bearer|basic|negotiate)\s+[a-z0-9._~+/=-]{8,}"), r"\1 [removed: token]"),
        (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), "[removed: token]"),
        (
            re.compile(
                r"\b(?:kc[aeosdv]_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|hf_|nvapi-|sk-|dckr_pat_|AKIA|ASIA)[\w-]{8,}"
            ),
            "[removed: token]",
        ),
        # What follows a secret's name may be another name, which must not count as the secret.
        (
            re.compile(
                rf"(?i)(?<![\w-])(-{{0,2}}{_SECRET_NAMES})({_IS})(?!\[removed)"
                rf"{_MORE_NAMES}{_QUOTED_OR_WORD}"
            ),
            _secret,
        ),
        # A word that only follows the name is a secret if the name is an option.
        (
            re.compile(
                rf"(?i)(?<![\w-])(-{{1,2}}{_SECRET_NAMES})(\s+(?=\S))(?!\[removed)"
                rf"{_MORE_NAMES}{_QUOTED_OR_WORD}"
            ),
            _secret,
        ),
        (
            re.compile(r"\b[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}\b"),
            "[removed: e-mail]",
        ),
        # What programs were started with: nvidia-smi's "Name : /path/program --arguments", audit records, cmdline.
        (re.compile(r"^(\s*(?:Process )?Name\s+: )(\S+)(.*)$"), _program),
        (
            re.compile(r"\b(exe|cmd|cmdline|proctitle|argv|args|cwd)=(?!\[removed)(?:\"[^\"]*\"?|\S+)"),
            r"\1=[removed: command]",
        ),
        (
            re.compile(r"\b(acct|user|username|login|logname|ruser)=(?!\[removed)(?:\"[^\"]*\"?|\S+)"),
            r"\1=[removed: user]",
        ),
        (
            re.compile(r"(/(?:home|Users|export/home|data/home|data/users|mnt/home|nfs/home)/)[^/\s\"',;:)]+"),
            r"\1[user]",
        ),
        (
            re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9+]*[0-9])(?=[A-Za-z0-9+]*[A-Za-z])[A-Za-z0-9+]{40,}={0,2}"),
            "[removed: random text]",
        ),
    )


def _secret(match: re.Match[str]) -> str:
    """``name=[removed: password]``."""
    kind = "password" if re.search(r"(?i)pass|pwd", match[1]) else "secret"
    return f"{match[1]}{match[2]}[removed: {kind}]"


def _program(match: re.Match[str]) -> str:
    """The last part of a program's path, without its arguments. Names of hardware and "N/A" have no slash."""
    if "/" not in match[2]:
        return match[0] if not re.search(r"\s-", match[3]) else f"{match[1]}{match[2]} [removed: arguments]"
    rest = " [removed: arguments]" if match[3].strip() else ""
    return f"{match[1]}{match[2].rpartition('/')[2]}{rest}"


def _printable(text: str) -> str:
    """Control characters would change what a terminal shows."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else "?" for char in text)


def _without_public_addresses(text: str) -> str:
    text = _ipv4().sub(lambda match: match[0] if _is_private(match[0]) else "[removed: IP address]", text)
    return _ipv6().sub("[removed: IP address]", text)


@functools.cache
def _ipv4() -> re.Pattern[str]:
    return re.compile(_IPV4)


@functools.cache
def _ipv6() -> re.Pattern[str]:
    """Global addresses (2000::/3). Local ones begin with fc, fd or fe80; PCI and MAC addresses have other shapes."""
    groups = r"(?:[0-9a-f]{1,4}:){1,6}(?::?[0-9a-f]{1,4}){1,6}|(?:[0-9a-f]{1,4}:)*:"
    return re.compile(rf"(?i)(?<![\w:.])[23][0-9a-f]{{3}}:(?:{groups})(?![\w:])")


def _is_private(address: str) -> bool:
    """Return whether IPv4 text names no machine of the public internet, or no machine at all."""
    parts = [int(part) for part in address.split(".")]
    first, second = parts[0], parts[1]
    return (
        any(part > 255 for part in parts)
        or first in (0, 10, 127, 255)
        or (first, second) in ((169, 254), (192, 168))
        or (first == 172 and 16 <= second <= 31)
        or (first == 100 and 64 <= second <= 127)  # carrier-grade NAT, which clusters use for pods
    )
