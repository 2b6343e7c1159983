"""Prometheus' answers to instant queries: one observation for each series whose value has become a fault.

``DCGM_FI_DEV_XID_ERRORS`` is the number of the last Xid of a GPU, 0 if there was none. It stays until the exporter
starts again, so that only a change of the value is a fault. For any other query, a series in the answer is a fault of
kind ``alert``, as in a rule for alerts, and ends when the series is gone.
Format: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from kcover import reasons
from kcover.faults.device import UUID, Device, named
from kcover.sources import alertmanager, labels as series_labels, observation
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.sources.prometheus_samples import MAX_SERIES, XID_METRIC, left_out, sample, shows_xids
from kcover.values.quote import short_repr, short_text

# A user's pod can export the metric too, but Prometheus gives it another job, unless the scrape has honor_labels. These
# are the jobs of the GPU operator, of the exporter's chart and of NVIDIA's guide.
DEFAULT_JOBS: Final = ("nvidia-dcgm-exporter", "dcgm-exporter", "gpu-metrics")
DEFAULT_QUERY: Final = f'{XID_METRIC}{{job=~"{"|".join(DEFAULT_JOBS)}"}}'
MAX_OTHER_JOBS: Final = 5  # that are named
# The server counts: 20,000 series of a user's pod would make the answer too large to read.
OTHER_JOBS: Final = f'topk({MAX_OTHER_JOBS}, count by (job) ({XID_METRIC}{{job!~"{"|".join(DEFAULT_JOBS)}"}}))'
NODE_LABELS: Final = ("exported_node", "Hostname", *alertmanager.NODE_LABELS)
MAX_XID: Final = 9_999
NO_XID: Final = "1"  # what a series shows that names no Xid
_MATCHER: Final = re.compile(r"""["']?([A-Za-z_][\w.]*)["']?\s*(=~|!~|!=|=)\s*(["'`])(.*?)(?<!\\)\3""")
_MATCHES_ALL: Final = frozenset({("!=", ""), ("=~", ".*"), ("=~", ".+"), ("!~", "")})

# Node, code and device -> the values that were faults when they were last read, apart by spaces. Those of an Xid have a
# key for each exporter: two exporters of one GPU may each keep a last Xid of their own.
Shown = Mapping[str, str]


def has_selector(query: str) -> bool:
    """Returns whether the query selects series by a label. Without one, it believes whatever Prometheus scrapes.

    The name of the metric is no label, and what every series matches selects nothing.
    """
    code = re.sub(r"#.*", "", query)
    found = (matcher for part in re.findall(r"\{([^{}]*)\}", code) for matcher in _MATCHER.findall(part))
    return any(name != "__name__" and (how, value) not in _MATCHES_ALL for name, how, _, value in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The reading before: a value that changed did so after its series was last read.

    ``at``: its time, None if there was none. ``shown``: see Shown. ``quiet``: digests of the series that it read and
    that were no fault. ``gone``: of the series in ``shown`` that it did not read, when they were last read.
    """

    at: datetime | None = None
    shown: Shown = field(default_factory=dict)
    quiet: Collection[str] = ()
    gone: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Json) -> Self:
        """The reading of ``to_json``. A position without a time is one of an older portal."""
        at = stored.get("at")
        return cls(
            at=datetime.fromisoformat(at) if at else None,
            shown=stored.get("shown", {}),
            quiet=frozenset(stored.get("quiet", ())),
            gone=stored.get("gone", {}),
        )

    def to_json(self) -> dict[str, Any]:
        """The reading as the source's position stores it."""
        at = self.at.isoformat() if self.at is not None else None
        return {"at": at, "shown": dict(self.shown), "quiet": sorted(self.quiet), "gone": dict(self.gone)}

    def read_at(self, key: str) -> datetime:
        """When the series was last read; LONG_AGO if it is not known."""
        if key in self.gone:
            return datetime.fromisoformat(self.gone[key])
        known = key in self.shown or _digest(key) in self.quiet
        return self.at if known and self.at is not None else observation.LONG_AGO


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAnswer:
    """What an answer says, and what the next reading compares with. ``is_whole``: it lacks no series."""

    batch: ObservationBatch
    after: Before
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """A series that names a node.

    ``place``: its node, its code and its device, whatever other labels it has. ``exporter``: what stays of the labels
    of an exporter when its pod starts again.
    """

    labels: Mapping[str, str]
    node: str
    code: str
    device: Device
    value: float
    at: datetime
    path: str

    @property
    def place(self) -> str:
        return "\t".join((self.node, self.code, self.device.key))

    @property
    def exporter(self) -> str:
        port = self.labels.get("instance", "").rpartition(":")[2]
        return f"{self.labels.get('job', '')} {port}".strip()[:80]

    def key(self, *, is_xid: bool) -> str:
        return f"{self.place}\t{self.exporter}" if is_xid and self.exporter else self.place

    def old_key(self, before: Before) -> str:
        """The key by an older portal, which named fewer devices; the present one if it does not apply."""
        gpu = self.device.slot or series_labels.first(self.labels, ("UUID", "gpu_uuid", "uuid", "gpu"))
        key = "\t".join((self.node, self.code, gpu))
        return key if before.at is None or not _is_place(key) else self.place


def read(
    body: object,
    *,
    query: str,
    node_labels: Sequence[str] = NODE_LABELS,
    before: Before,
    now: datetime,
) -> SeriesAnswer:
    """The series of an answer. Raises Unreadable if it is not a vector."""
    found: list[Observation] = []
    current: dict[str, str] = {}
    became: list[tuple[_Series, str, str]] = []
    scraped: set[tuple[str, str]] = set()  # nodes and their exporters that the reading before has read, too
    keys: set[str] = set()
    seen: set[str] = set()  # keys, and the places of series
    told: dict[str, set[str]] = {}  # of each place: what its series showed before, and what is told now
    items = observation.query_result(body, "vector", code="prometheus_result", most=MAX_SERIES)
    rejected: list[Rejected] = []
    for index, item in enumerate(items):
        path = f"result/{index}"
        try:
            series = _series(item, path, query=query, node_labels=node_labels, now=now)
            is_xid = _is_xid(query, series.labels)
            if not is_xid and _is_quiet(series):
                continue
            key = series.key(is_xid=is_xid)
            keys.add(key)
            value = _xid_of(series) if is_xid else _alert_value(series)  # without a value, it stays as it was shown
            names = {key, series.place, series.old_key(before)}
            seen |= names
            if before.at is not None and before.read_at(key) == before.at:
                scraped.add((series.node, series.exporter))
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))
            continue
        told.setdefault(series.place, set()).update(*(before.shown.get(one, "").split() for one in names))
        if value != "0":
            current[key] = " ".join(sorted({*current.get(key, "").split(), value}))
            became.append((series, value, key))
    gone = {key: value for key, value in before.shown.items() if key not in seen}
    left = {(key.partition("\t")[0], value) for key, values in gone.items() for value in values.split()}
    for series, value, key in became:
        # An older portal stored 1, whatever the labels said.
        is_told = value in told[series.place] or (NO_XID in told[series.place] and not _is_xid(query, series.labels))
        if not is_told:
            told[series.place].add(value)
            is_new = (series.node, series.exporter) in scraped and (series.node, value) not in left
            earliest = _earliest(before, series, key, is_xid=_is_xid(query, series.labels), is_new=is_new)
            found.append(_fault(series, value, query=query, earliest=earliest, now=now))
    why = left_out(body)
    if shows_xids(query):  # an exporter that does not answer proves nothing; its series come back as they were
        current = {**dict(itertools.islice(gone.items(), MAX_SERIES - len(current))), **current}
    else:
        standing, ended = _standing(before, told, seen)
        current |= standing
        if why:
            current |= {key: before.shown.get(key, NO_XID) for key in ended}
            rejected.append(Rejected("warnings", reasons.of("prometheus_partial", why=short_repr(why))))
        else:
            found += [passed(key, now=now) for key in ended]
    after = Before(
        at=now,
        shown=current,
        quiet={_digest(key) for key in keys if key not in current},
        gone={key: before.read_at(key).isoformat() for key in gone if key in current},
    )
    batch = ObservationBatch(observations=tuple(found), rejected=tuple(rejected))
    return SeriesAnswer(batch=batch, after=after, is_whole=not why)


def _standing(before: Before, told: Collection[str], seen: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Of what was shown before: what named no device and still stands, and the keys of what has ended.

    What named no device may be of any device of its check, so that it ends with the last of them.
    """
    checks = {place[: place.rindex("\t") + 1] for place in told}
    keys = dict.fromkeys(key if _is_place(key) else key[: key.rindex("\t") + 1] for key in before.shown)
    standing = {key: NO_XID for key in keys if key in checks}
    return standing, [key for key in keys if key not in standing and key not in seen]


def _earliest(before: Before, series: _Series, key: str, *, is_xid: bool, is_new: bool) -> datetime:
    """When it was no fault: a query for faults gives no such series, and some exporters show none (``is_new``)."""
    known = max(before.read_at(key), before.read_at(series.place))
    if not is_xid or (is_new and known == observation.LONG_AGO):
        return before.at or observation.LONG_AGO
    return known


def _digest(key: str) -> str:
    """Short, because most series of a cluster are no fault."""
    return hashlib.blake2b(key.encode(), digest_size=6).hexdigest()


def other_jobs(body: object) -> tuple[Rejected, ...]:
    """A rejection for each job in the answer to OTHER_JOBS. Raises Unreadable if it is not a vector."""
    items = observation.query_result(body, "vector", code="prometheus_result", most=MAX_OTHER_JOBS)
    return tuple(Rejected("metric/job", _unbelieved(job)) for job in map(_job, items))


def _job(item: object) -> str:
    labels = item.get("metric") if isinstance(item, Mapping) else None
    job = labels.get("job") if isinstance(labels, Mapping) else None
    return job if isinstance(job, str) else ""


def _unbelieved(job: str) -> reasons.Reason:
    query = f"{XID_METRIC}{{job={json.dumps(short_text(job), ensure_ascii=False)}}}"
    known = ", ".join(DEFAULT_JOBS)
    return reasons.of("prometheus_job", job=short_text(job) or "-", known=known, setting="query", query=query)


def _series(item: object, path: str, *, query: str, node_labels: Sequence[str], now: datetime) -> _Series:
    if not isinstance(item, Mapping):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(item)))
    given = observation.mapping(item, "metric")
    labels = {name: observation.text(given, name) for name in given}
    value, at = sample(item, now=now)
    of_query = XID_METRIC if XID_METRIC in query else ""  # a function takes the name off
    name = labels.get("alertname") or labels.get("__name__") or of_query
    code = "xid" if _is_xid(query, labels) else observation.code(name, "metric/__name__")
    device = series_labels.device(labels)
    return _Series(
        labels=labels,
        node=series_labels.node(labels, node_labels),
        code=code,
        device=device.whole if code == "xid" else device,
        value=value,
        at=at,
        path=path,
    )


def _is_xid(query: str, labels: Json) -> bool:
    return shows_xids(query) or labels.get("__name__") == XID_METRIC


def _xid_of(series: _Series) -> str:
    if not (series.value.is_integer() and 0 <= series.value <= MAX_XID):  # DCGM's blank values are 2**31 - 16 and more
        raise Unreadable("value/1", reasons.of("prometheus_xid", value=str(series.value)))
    return str(int(series.value))


def _is_quiet(series: _Series) -> bool:
    """Return whether the series tells of no fault: an alert that does not fire yet, or a count of none.

    dcgm-exporter counts events in a window, and shows a 0 for each GPU that had none.
    """
    is_count = series.code.startswith("DCGM_EXP_") and series.code.endswith("_COUNT")
    return series.labels.get("alertstate") == "pending" or (is_count and series.value == 0)


def _alert_value(series: _Series) -> str:
    """What a series of alerts shows: the Xid in its labels, as two Xids of one GPU are two faults; else 1."""
    return str(series_labels.xid(series.labels) or NO_XID)


def _fault(series: _Series, value: str, *, query: str, earliest: datetime, now: datetime) -> Observation:
    is_xid = _is_xid(query, series.labels)
    name = series.labels.get("__name__", "") or query[:200]
    alias = int(value) if is_xid else series_labels.xid(series.labels)
    labels = {**series.labels, "alertname": series.code}
    severity, weight = alertmanager.weighed(labels, () if alias is None else (alias,))
    return Observation(
        path=series.path,
        key="\n".join((series.place, value, now.isoformat())),
        node=series.node,
        kind="xid" if is_xid else "alert",
        code=int(value) if is_xid else series.code,
        check=value if is_xid else series.code,
        device=series.device,
        message=f"{name} = {value if is_xid else series.value:}",
        severity=severity,
        weight=weight,
        alias=None if is_xid else alias,
        seen_at=series.at,
        earliest=earliest,
    )


def passed(key: str, *, now: datetime) -> Observation:
    """The end of the alert of a series that is gone."""
    node, code, device = key.split("\t")[:3]
    return Observation(
        path="result",
        key="\n".join((key, "gone", now.isoformat())),
        node=node,
        kind="alert",
        code=code,
        check=code,
        device=_of_key(device),
        message=code,
        healthy=True,
        seen_at=now,
    )


def _is_place(key: str) -> bool:
    """Return whether the key is of this form; those of earlier versions named a GPU by its number alone."""
    device = key.split("\t")[2]
    return not device or bool(_of_key(device))


def _of_key(key: str) -> Device:
    """The device of a key (``Device.key``)."""
    words = key.split(" ")
    if len(words) > 1 and not (observation.pci(words[0]) or UUID.fullmatch(words[0])):
        return Device(unit=" ".join(words[:2]), part=" ".join(words[2:]))
    return named(pci=words[0], uuid=words[0], part=" ".join(words[1:]))
