"""Prometheus' series about the performance of jobs: which pod or job each is about, and its value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.sources import labels as series_labels, observation
from kcover.sources.observation import Rejected, Unreadable
from kcover.sources.prometheus_samples import MAX_SERIES, sample
from kcover.values.quote import short_repr

# The labels that Prometheus gives a scraped pod. A label ``exported_pod`` is what the program itself says, and it may
# name the pod of another: whoever scrapes one exporter for many pods names it in the settings.
NAMESPACE_LABELS: Final = ("namespace",)
POD_LABELS: Final = ("pod",)
JOB_LABELS: Final = ("training_job", "job_name")  # ``job`` is the name of the scrape job
SHAPE_LABELS: Final = ("batch_size", "global_batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeries:
    """One value about a pod, or about a job ("": not named). ``node``: as its labels name it, "" if none does.

    ``shape``: what values must share to be comparable: the names of the labels, and the values of the shape labels.
    """

    namespace: str
    pod: str
    job: str
    node: str
    shape: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of labels; of several the first one that a series has counts."""

    namespace: Sequence[str] = NAMESPACE_LABELS
    pod: Sequence[str] = POD_LABELS
    job: Sequence[str] = JOB_LABELS
    shape: Sequence[str] = SHAPE_LABELS


def read(body: object, *, names: Names, now: datetime) -> tuple[list[JobSeries], list[Rejected]]:
    """The series of an answer to an instant query, and those that are about no job. Raises Unreadable."""
    found: list[JobSeries] = []
    rejected: list[Rejected] = []
    for index, item in enumerate(observation.query_result(body, "vector", code="prometheus_result", most=MAX_SERIES)):
        path = f"result/{index}"
        try:
            found.append(_series(item, names=names, now=now))
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))
    return found, rejected


def _series(item: object, *, names: Names, now: datetime) -> JobSeries:
    if not isinstance(item, Mapping):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(item)))
    given = observation.mapping(item, "metric")
    labels = {name: observation.text(given, name) for name in given}
    value, _ = sample(item, now=now)
    namespace = series_labels.first(labels, names.namespace)
    pod, job = series_labels.first(labels, names.pod), series_labels.first(labels, names.job)
    if not namespace or not (pod or job):
        raise Unreadable("metric", reasons.of("performance_labels", labels=", ".join((*names.pod, *names.job))))
    alike = [*sorted(labels), labels.get("__name__", ""), *(f"{name}={labels.get(name, '')}" for name in names.shape)]
    node = series_labels.first(labels, series_labels.NODE_LABELS)
    return JobSeries(namespace=namespace, pod=pod, job=job, node=node, shape=" ".join(alike), value=value)
