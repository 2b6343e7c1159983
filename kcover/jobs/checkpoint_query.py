"""A Prometheus query for the time of a job's last checkpoint, as a rule writes it, with placeholders for the job.

``max(checkpoint_time{namespace="{namespace}",training_job="{job}"})``: PromQL has braces of its own,
so only ``{namespace}`` and ``{job}`` between quotes are placeholders.
https://prometheus.io/docs/prometheus/latest/querying/basics/#string-literals
"""

import re
from typing import Final

from kcover import reasons
from kcover.reasons import Reason

EXAMPLE: Final = 'max(checkpoint_time{namespace="{namespace}",training_job="{job}"})'
JOB: Final = "{job}"
MAX_TEXT: Final = 500  # characters
_PLACEHOLDER: Final = re.compile(r"\{(namespace|job)\}")
# A comment, or a string with the matcher before it. A backtick string knows no escapes, so it has no placeholders.
_TOKEN: Final = re.compile(
    r"""#[^\n]*|(?P<pattern>[=!]~\s*)?(?P<text>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')|`[^`]*`"""
)
_RE2_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def refusal(query: str) -> Reason | None:
    """Return why a rule may not have this query; None if it may."""
    if not 0 < len(query) <= MAX_TEXT or _CONTROL.search(query):
        return reasons.of("checkpoint_query_length", most=MAX_TEXT)
    quoted = [match["text"] or "" for match in _TOKEN.finditer(query)]
    count = sum(len(_PLACEHOLDER.findall(text)) for text in quoted)
    outside = _TOKEN.sub("", query)
    misplaced = count != len(_PLACEHOLDER.findall(query)) or re.search("[\"'`]", outside)
    if misplaced or not any(JOB in text for text in quoted):
        return reasons.of("checkpoint_query_invalid", job=JOB, example=EXAMPLE)
    return None


def fill(query: str, *, namespace: str, job: str) -> str:
    """The query for one job. Whatever the names are, they stay within the strings that they are put into."""
    values = {"namespace": namespace, "job": job}

    def put(token: re.Match[str]) -> str:
        text = token["text"]
        if text is None:
            return token[0]
        before = token["pattern"] or ""
        return before + _PLACEHOLDER.sub(
            lambda found: _escaped(values[found[1]], quote=text[0], is_pattern=bool(before)), text
        )

    return _TOKEN.sub(put, query)


def _escaped(value: str, *, quote: str, is_pattern: bool) -> str:
    if is_pattern:
        value = _RE2_SPECIAL.sub(r"\\\g<0>", value)
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace(quote, f"\\{quote}")
