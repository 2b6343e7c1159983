"""The weight of a report: a fault of the node, or something that only resembles one.

Each source says it in words of its own: a severity, an action, a type, the number of an Xid. Only NODE is a fault of
the node. Of the others no rule without their code acts, except that a rule for a whole kind may cover PROGRAM.
"""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

from kcover.faults import catalog, nvlink5, xid


class Weight(StrEnum):
    """What a report is about: the node, a user's program, the monitor that reports, or nothing that is wrong."""

    NODE = "node"
    PROGRAM = "program"
    MONITOR = "monitor"
    INFO = "info"


# The words of alerts' severities, of Kubernetes Events and of conditions; any other word is a warning.
SEVERITIES: Final = {
    **dict.fromkeys(("critical", "crit", "page", "fatal", "emergency", "alert", "disaster", "p0", "p1"), "fatal"),
    **dict.fromkeys(("error", "err", "major", "high", "degraded"), "degraded"),
    **dict.fromkeys(("info", "information", "informational", "notice", "none", "ok", "normal", "debug"), "info"),
}
_NUMBER: Final = r"[0-9]{1,10}"
# ``XID 31, 79 detected`` names two; ``Xid 79, 2 GPUs`` and ``XID error 3 times`` count something else.
_OF_OTHERS: Final = (
    r"(?! *(?:gpus?|times?|errors?|devices?|nodes?|pods?|process(?:es)?|jobs?|containers?|occurrences?|others?|more"
    r"|min(?:ute)?s?|s(?:ec(?:ond)?s?)?|h(?:ours?)?|days?)\b)"
)
_FURTHER: Final = rf"[0-9]{{1,3}}(?![0-9]|:[0-9]{{2}}){_OF_OTHERS}"  # neither a year nor a time of the day
_OF_SEVERAL: Final = r"(?! (?:gpus|nodes|devices|pods|hosts|occurrences?)\b)"  # ``Xid errors: 2 GPUs``
_LETTER: Final = r"[^\W\d_A-Za-z]"  # of another script, as in 错误, 코드 and エラー
_COUNTED: Final = r"[次数數个個件回번회건횟内在近間间]"  # in words of a count or of a window: 次数, 횟수, 最近, 在
_UNITS: Final = r"[次个個件回번회건횟分秒时時小天日月年台張张卡초시간일]"  # behind a number that counts
# What may stand between the word and its number: ``XID error detected: 31``, ``"xid":43``, ``XID 错误：43``.
_BETWEEN: Final = (
    rf"(?:[ _-]?(?:errors?|codes?|values?|numbers?|detected|is|was|no\.|fehler(?:code)?"
    rf"|(?!{_LETTER}{{0,8}}{_COUNTED}){_LETTER}{{1,8}})){{0,3}}"
    r"[\"'`]?(?:[ _#=(\[-]{0,3}| ?[:：] ?\[?| ?<(?=[0-9]{1,10}>))[\"'`]?"
)
_AND: Final = r"(?:, ?|[，、] ?| ?[/&|] ?| and | or | ?[和与及或] ?)"
_XID: Final = re.compile(
    rf"(?<![Ss])XID{_BETWEEN}({_NUMBER}(?:{_AND}{_FURTHER})*){_OF_SEVERAL}"
    r"(?:\.[0-9]{1,3}(?= \(err status ))?"  # gpud adds the sub-code of an NVLink event: 149.37 (err status 0x00000000)
    rf"(?!\.?[0-9%]|[smhd]\b| times?\b| ?{_UNITS}| (?:with)?in (?:the )?(?:last|past|[0-9])| per\b)",  # these count
    re.IGNORECASE,
)
# What could come, in a text that explains: ``act only if it escalates to a DBE (Xid 48)``, up to the sentence's end.
_HYPOTHESIS: Final = re.compile(
    r"(?:\b(?:precursors?|escalat(?:es?|ing)|leads? to|turns? into|such as|for example|if|unless|ignore[sd]?|except"
    r"|unlike|other than|(?:may|might|could)(?! have\b| be\b| not\b))\b|\be\.g\.|如果|可能会|例如|忽略)"
    r"[^.:;!?。：；！？\n]*",
    re.IGNORECASE,
)
# A line of the kernel behind another one. Without an address, the name of a process may look like one.
_NEXT_LINE: Final = re.compile(r"(?=NVRM: Xid \()")
# The name of a process, which its user chose, and the Xid of another channel, perhaps of another GPU.
_NOT_SAID: Final = re.compile(
    r"(?<=pid=)[^,\n]{1,14}, {1,4}name=(?:[^\n]{0,15}(?=, )|[^,\n]{0,60})|caused by previous Xid [0-9]{1,10}"
)
# A monitor that reports that it cannot look. What its subject did meanwhile is not known.
_GONE: Final = (
    r"(?:down|absent|missing|gone|lost|un(?:available|reachable)|not[ _-]?(?:running|ready|found|reachable|reporting)"
    r"|crash[ _-]?loop|scrape[ _-]?(?:fail|err))"
)
_MONITOR: Final = re.compile(
    rf"dcgm[ _-]?(?:connect(?:ivity|ion)|services?\b)|(?:exporter|host[ _-]?engine)s?[ _-]?(?:is[ _-]?)?{_GONE}"
    rf"|(?:^|prometheus|scrape)[ _-]?targets?[ _-]?(?:is[ _-]?)?{_GONE}|metrics?[ _-]?(?:are[ _-]?|is[ _-]?)?{_GONE}"
    rf"|scrape[ _-]?(?:fail|err|down)|metrics?[ _-]?push|dcgm[ _-]?(?:daemon ?sets?|pods?|is)?[ _-]?{_GONE}"
    r"|^Datasource(?:NoData|Error)$"  # Grafana's name of any alert whose query has failed or gives nothing
    rf"|(?:node[ _-]?problem[ _-]?detector|^npd)[ _-]?(?:is[ _-]?)?{_GONE}"
    r"|metrics?[ _-]?(?:are[ _-]?|is[ _-]?)?stale|(?:^|gpu|dcgm|node)[ _-]?no[ _-]?(?:gpu|dcgm|node)?[ _-]?metrics?\b",
    re.IGNORECASE,
)
_CANNOT: Final = r"(?:failed|unable|cannot|could not)(?: to)? (?:connect|reach|talk)(?: to)?"
_CANNOT_MEASURE: Final = re.compile(
    rf"{_CANNOT} (?:the )?(?:local )?(?:nvidia )?(?:dcgm|nv-hostengine|host ?engine|docker|containerd)"
    r"|(?:dcgm|nv-hostengine|host ?engine|exporter)\b[^.\n]{0,60}\b(?:unavailable|unreachable|connection refused"
    r"|not (?:installed|running|found|available|initialized|reachable))"
    r"|failed to initialize dcgm\b|host ?engine connection (?:is )?invalid"  # EKS: DCGMError
    r"|\b(?:not|no longer) supported\b|\bis not installed\b|installed but [^.\n]{0,40}\bservice is not active",
    re.IGNORECASE,
)


def severity_of(word: str) -> str:
    """One of the catalog's severities for a source's word; an unknown one is a warning."""
    return SEVERITIES.get(word.strip().lower(), "warning")


def of_xid(code: int, text: str = "") -> Weight:
    """The weight of an Xid by the catalog, and by the line of the kernel in ``text`` if there is one.

    An Xid 154 says what the GPU needs now: without the printed action it tells of no fault.
    """
    if code == xid.RECOVERY_ACTION_CHANGED and not xid.recovery_action(text):
        return Weight.INFO
    line = xid.parse_line(text)
    told = line if line is not None and (line.kind, line.code) == ("xid", code) else None
    fatal, cause = nvlink5.is_fatal(told), told.cause if told is not None else None
    if not catalog.is_user_fault("xid", code, cause=cause, fatal=fatal):
        return Weight.NODE
    entry = catalog.xid(code)
    is_info = entry is not None and not entry.app_caused and catalog.is_information(entry, fatal=fatal)
    return Weight.INFO if is_info else Weight.PROGRAM


def of_xids(codes: Collection[int], text: str = "") -> Weight:
    """The weight of the worst of these Xids; ``text``: as for one."""
    weights = {of_xid(code, text) for code in codes}
    return next((weight for weight in (Weight.NODE, Weight.PROGRAM, Weight.INFO) if weight in weights), Weight.NODE)


def named_xid(*texts: str) -> int | None:
    """The Xid that these texts name (``XID 145``, ``Xid: 79``); None if they name none, or several."""
    return only(named_xids(*texts))


def only(xids: Collection[int]) -> int | None:
    """The Xid that a report is about, of those that it names; None if it names none, or several."""
    return next(iter(xids)) if len(xids) == 1 else None


def named_xids(*texts: str) -> frozenset[int]:
    """All Xids that these texts name, but not by the name of a process, nor as a cause or as what could come.

    What could come counts where nothing else is named and the report weighs less by it.
    """
    texts = tuple(_NOT_SAID.sub("", text) for text in texts)
    found = _numbers(_HYPOTHESIS.sub("", text) for text in texts)
    if not found and (could := _numbers(texts)) and of_xids(could) is not Weight.NODE:
        found = could
    printed = (line for text in texts if "NVRM: " in text for line in text.splitlines())
    lines = (xid.parse_line(part) for line in printed for part in _NEXT_LINE.split(line))
    found |= {line.code for line in lines if line is not None and line.kind == "xid"}
    return frozenset(code for code in found if 0 < code <= xid.MAX_CODE)


def _numbers(texts: Iterable[str]) -> set[int]:
    named = (numbers for text in texts for numbers in _XID.findall(text))
    return {int(number) for numbers in named for number in re.findall(_NUMBER, numbers)}


def is_of_monitor(check: str, text: str = "") -> bool:
    """Return whether a check, or the text of its failure, says that the monitor itself does not work.

    The text counts only where the sender asks for no repair and the report is not fatal: leave it out otherwise.
    """
    return _MONITOR.search(check) is not None or _CANNOT_MEASURE.search(text) is not None
