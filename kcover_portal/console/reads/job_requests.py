"""Requests for approval that interrupt the same training job, side by side, so that they are read as one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kcover_portal.console.reads.approvals import ApprovalRequest
from kcover_portal.incidents.models import JobSeen

NEAR: Final = timedelta(hours=1)  # between the opening of a rescue and the look that found the job on its node


@dataclass(frozen=True, slots=True)
class JobRequests:
    """The requests about one job: its namespace and name, and their keys if the reader can answer all of them."""

    job: str
    number: int
    picked: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A request in its place. ``opens``: it is the first of several about one job; ``follows``: one of the others."""

    question: ApprovalRequest
    opens: JobRequests | None = None
    follows: bool = False


def placed(questions: Sequence[ApprovalRequest]) -> list[Placed]:
    """The requests, the first to expire first, and right after each the others about its job. One query."""
    if len(questions) < 2:
        return [Placed(question) for question in questions]
    jobs = _jobs(questions)
    left = list(questions)
    found: list[Placed] = []
    while left:
        first, *rest = left
        shared = {
            job: [other for other in rest if job in jobs[other.rescue.pk] and _one_cluster(first, other)]
            for job in sorted(jobs[first.rescue.pk])
        }
        job, others = max(shared.items(), key=lambda one: len(one[1]), default=("", []))
        if others:
            keys = [str(one.rescue.pk) for one in (first, *others)]
            answers = all(not one.refusal for one in (first, *others))
            opens = JobRequests(job, len(keys), ",".join(keys) if answers else "")
            found += [Placed(first, opens), *(Placed(other, follows=True) for other in others)]
        else:
            found.append(Placed(first))
        taken = {one.rescue.pk for one in others}
        left = [one for one in rest if one.rescue.pk not in taken]
    return found


def _one_cluster(one: ApprovalRequest, other: ApprovalRequest) -> bool:
    return one.rescue.cluster_id == other.rescue.cluster_id


def _jobs(questions: Sequence[ApprovalRequest]) -> dict[int, set[str]]:
    """The jobs whose pods were on the node of each request, by the key of its rescue."""
    nodes = [one.rescue.node_id for one in questions]
    seen: dict[int, list[JobSeen]] = defaultdict(list)
    for row in JobSeen.objects.filter(node__in=nodes).exclude(job=""):
        seen[row.node_id].append(row)
    return {
        one.rescue.pk: {row.job for row in seen[one.rescue.node_id] if row.at >= one.rescue.opened_at - NEAR}
        for one in questions
    }
