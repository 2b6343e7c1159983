"""The verdict on a trial: the rescue must end as planned, with nothing done twice and nothing left behind."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.crash import rescues, setup
from tests.crash.installation import Installation
from tests.crash.plans import PLANS, PODS
from tests.crash.trials import Trial

Manifest = dict[str, Any]
MAKES = ("create", "jobs")
OF_MACHINE = ("providerID", "podCIDR", "podCIDRs")  # of a node's spec


def judge(
    product: Installation,
    trials: Sequence[Trial],
    audit: Mapping[str, Any],
    *,
    undisturbed: Sequence[Trial] | None = None,
) -> None:
    """Adds to each trial what is wrong; the undisturbed trials show what a rescue does to a node.

    ``audit``: the answer of ``Installation.audit`` when all rescues were over. ``undisturbed``: those without a case,
    unless it names them.
    """
    found, jobs = rescues.by_node(product), _nodes_with_jobs(product)
    query = (
        "SELECT n.name, i.kind, i.code FROM incidents_incident i JOIN fleet_node n ON n.id = i.node_id "
        "WHERE i.state = 'open' AND i.code <> 'FailsFirst'"  # nothing that the portal does disproves that one
    )
    incidents, orders = product.rows(query), rescues.orders_by_node(product)
    controls = undisturbed if undisturbed is not None else [trial for trial in trials if trial.case is None]
    wanted = {trial.plan: _applied(product, trial) for trial in controls}
    for trial in trials:
        if audit["chains"]:
            trial.wrong.append(f"ledger: {audit['chains']}")
        if trial.missed and not trial.repeated:
            tries = [*trial.earlier, trial.missed]
            trial.wrong.append(f"it was not struck in {len(tries)} trials: {' | '.join(tries)}")
        if trial.given_up:
            trial.wrong.append(f"it had not ended in time: {trial.late}")
        trial.wrong += _wrong_ends(product, trial, found.get(trial.node, []), audit)
        trial.wrong += _wrong_approvals(product, trial)
        trial.wrong += _wrong_order(product, trial, orders.get(trial.node, []))
        trial.wrong += _wrong_pair(product, trial)
        trial.wrong += [f"incident {kind} {code} is left open" for node, kind, code in incidents if node == trial.node]
        applied = _applied(product, trial)
        if applied != wanted[trial.plan]:
            trial.wrong.append(f"destructive calls with an effect: {applied}, undisturbed {wanted[trial.plan]}")
        trial.wrong += _twice(product, trial)
        trial.wrong += _left_behind(trial.before, product.sim_node(trial.node), replaced=bool(PLANS[trial.plan].owner))
        trial.wrong += _wrong_standbys(product, trial)
        trial.wrong += _wrong_outside(product, trial)
        trial.wrong += _wrong_validations(product, trial)
        trial.wrong += _wrong_repairs(product, trial)
        trial.wrong += _wrong_devices(product, trial)
        if (PLANS[trial.plan].hung or PLANS[trial.plan].paired) and jobs & {trial.node, trial.partner}:
            trial.wrong.append("the job that nobody wants any more is left")


def _wrong_ends(product: Installation, trial: Trial, mine: Sequence[Any], audit: Mapping[str, Any]) -> Iterator[str]:
    ends = tuple((row.state, row.outcome) for row in mine)
    if ends != PLANS[trial.plan].ends:
        yield f"rescues ended {ends}: {_story(product, trial)}"
    yield from (text for row in mine if (text := audit["rescues"][str(row.pk)]))
    yield from (f"proof: {text}" for row in mine if (text := audit["proofs"][str(row.pk)]))


def _wrong_approvals(product: Installation, trial: Trial) -> Iterator[str]:
    """Approvals of the node's rescues: one where the plan asks for one. No step that needs it began before it."""
    query = (
        "SELECT a.approved, a.at <= "
        "(SELECT min(s.started_at) FROM rescue_step s WHERE s.rescue_id = r.id AND s.index >= a.step) "
        "FROM rescue_approval a JOIN rescue_rescue r ON r.id = a.rescue_id "
        "JOIN fleet_node n ON n.id = r.node_id WHERE n.name = %s"
    )
    found = product.rows(query, trial.node)
    if found != [(True, True)] * PLANS[trial.plan].approved:
        yield f"approvals, and whether the steps came after them: {found}"


def _wrong_order(product: Installation, trial: Trial, states: Sequence[str]) -> Iterator[str]:
    """Orders that are not done, and a job that a restart did not keep off its node, or more than once."""
    order = PLANS[trial.plan].order
    if order and states != ["done"]:
        query = "SELECT state, attempts, because FROM jobs_joborder WHERE name = %s ORDER BY id"
        yield f"orders ended {product.rows(query, f'{trial.node}-job')}"
    if order == "label" and setup.NEED_RECOVERY in _job(product, trial.node)["metadata"]["labels"]:
        yield "the label that orders a restart is still there"
    if PLANS[trial.plan].gang:
        status = product.kube("GET", f"{setup.GANGS}/{trial.node}-job")["status"]
        if (status["retryCount"], status["state"]["phase"]) != (1, "Running"):
            yield f"the gang was not restarted exactly once: {status}"
    elif order in ("restart", "label"):
        excluded = _excluded(product, trial.node)
        if excluded != [trial.node] and not (excluded == [] and _may_be_skipped(trial)):
            yield f"the job is kept off {excluded}"


def _wrong_pair(product: Installation, trial: Trial) -> Iterator[str]:
    """A preflight plan without a figure or with another verdict; a node that ran the test twice."""
    if not PLANS[trial.plan].paired:
        return
    query = (
        "SELECT p.state, p.slow::text, p.inconclusive::text, t.state, t.because::text FROM preflight_pairplan p "
        "JOIN preflight_pairtest t ON t.plan_id = p.id JOIN fleet_node n ON n.id IN (t.first_id, t.second_id) "
        "WHERE n.name = %s"
    )
    found = product.rows(query, trial.node)
    if found != [("finished", "[]", "[]", "passed", "{}")]:
        yield f"pair tests: {found}"
    for node in (trial.node, trial.partner):
        made = [row for row in product.sim_calls(node=node)["calls"] if (row["verb"], row["resource"]) == MAKES]
        if (count := sum(row["count"] for row in made if row["applied"])) != 1:
            yield f"{count} Jobs were created on {node}"


def _may_be_skipped(trial: Trial) -> bool:
    """Returns whether the API server refused the exclusion: the restart does not wait for it."""
    case = trial.case
    return case is not None and "exclude" in case.point.call and case.failure.status is not None and not case.after


def _job(product: Installation, node: str) -> dict[str, Any]:
    return product.kube("GET", f"/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/{node}-job")


def _excluded(product: Installation, node: str) -> list[str]:
    """The hosts that the template of the node's job excludes."""
    affinity = _job(product, node)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].get("affinity", {})
    required = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    found = (one["values"] for term in required.get("nodeSelectorTerms", []) for one in term["matchExpressions"])
    return [host for hosts in found for host in hosts]


def _wrong_standbys(product: Installation, trial: Trial) -> Iterator[str]:
    if len(trial.spares) != PLANS[trial.plan].standby:
        yield f"standbys: {list(trial.spares)}"
    for spare, before in trial.spares.items():
        yield from (f"standby {spare}: {text}" for text in _left_behind(before, product.sim_node(spare)))


def _wrong_outside(product: Installation, trial: Trial) -> Iterator[str]:
    """Orders to the other system and messages to people that were lost or repeated."""
    if product.other.taken[trial.node] != PLANS[trial.plan].ordered:
        yield f"the other system took {product.other.taken[trial.node]} orders"
    if product.other.commanded[trial.node] != _to_be_told(trial):
        yield f"people were told {product.other.commanded[trial.node]} times"


def _wrong_validations(product: Installation, trial: Trial) -> Iterator[str]:
    """The validations of the node's rescues: exactly one where the plan asks for one."""
    query = (
        "SELECT v.state FROM checks_validation v JOIN rescue_rescue r ON r.id = v.rescue_id "
        "JOIN fleet_node n ON n.id = r.node_id WHERE n.name = %s"
    )
    found = [state for (state,) in product.rows(query, trial.node)]
    if found != ["passed"] * PLANS[trial.plan].validated:
        yield f"validations: {found}"


def _wrong_repairs(product: Installation, trial: Trial) -> Iterator[str]:
    """The repairs of the node: exactly one where the plan asks for one, and it is closed."""
    found = [state for (state,) in product.rows("SELECT state FROM repairs_repair WHERE node_name = %s", trial.node)]
    if found != ["closed"] * PLANS[trial.plan].repaired:
        yield f"repairs: {found}"


def _wrong_devices(product: Installation, trial: Trial) -> Iterator[str]:
    """Rules that taint a device of the node: one was created where the plan asks for one, and none is left."""
    found = product.kube("GET", "/apis/resource.k8s.io/v1beta2/devicetaintrules")["items"]
    if left := [one["spec"] for one in found if one["spec"]["deviceSelector"].get("pool") == trial.node]:
        yield f"device taint rules are left: {left}"
    made = product.sim_calls(node=trial.node, resource="devicetaintrules")["calls"]
    if (count := sum(row["count"] for row in made if row["verb"] == "create" and row["applied"])) != PLANS[
        trial.plan
    ].published:
        yield f"{count} device taint rules were created"


def _to_be_told(trial: Trial) -> int:
    """How often people are to be told: once, but a channel that says 409, that it will not, is believed."""
    refused = trial.case is not None and trial.case.failure.status == 409 and not trial.case.after
    return int(PLANS[trial.plan].commanded and not refused)


def _nodes_with_jobs(product: Installation) -> set[str]:
    """The nodes for which there is a job."""
    found = product.kube("GET", "/apis/batch/v1/jobs")["items"]
    return {str(job["spec"]["template"]["spec"].get("nodeName", "")) for job in found}


def _applied(product: Installation, trial: Trial) -> dict[str, int]:
    """How many calls that can take work or a node down had an effect on the trial's node and on its standby, as the
    simulator counted; the deletion of a job, which keeps a node up, is counted too."""
    counted: Counter[str] = Counter()
    for whose, name in [("", trial.node), *(("standby: ", spare) for spare in trial.spares)]:
        for row in product.sim_calls(node=name)["calls"]:
            called_off = (row["verb"], row["resource"]) == ("delete", "jobs")
            if row["applied"] and (row["destructive"] or called_off):
                counted[f"{whose}{row['verb']} {row['resource']}"] += row["count"]
    return dict(counted)


def _twice(product: Installation, trial: Trial) -> Iterator[str]:
    """Pods that were not evicted exactly once, boots that nobody needed."""
    found = product.sim_calls(node=trial.node, resource="pods/eviction")
    evicted = Counter(row["name"] for row in found["recent"] if row["applied"])
    for letter in PODS if PLANS[trial.plan].drained else ():
        if evicted[f"{trial.node}-{letter}"] != 1:
            yield f"{trial.node}-{letter} was evicted {evicted[f'{trial.node}-{letter}']} times"
    boots = len(product.sim_truth(trial.node)["boots"]) - 1
    if boots != PLANS[trial.plan].boots:
        yield f"{boots} boots"


def _left_behind(before: Manifest, after: Manifest, *, replaced: bool = False) -> Iterator[str]:
    """What is not on a node as it was before: the portal takes back all it did, and nothing else. ``replaced``: by
    another machine, which has some of its own."""
    if (before["metadata"]["uid"] != after["metadata"]["uid"]) != replaced:
        yield "another machine" if not replaced else "the same machine"
    if replaced:
        before, after = (
            {**one, "spec": {key: value for key, value in one["spec"].items() if key not in OF_MACHINE}}
            for one in (before, after)
        )
    for part in ("labels", "annotations"):
        was, now = before["metadata"].get(part) or {}, after["metadata"].get(part) or {}
        if was != now:
            yield f"{part} were {was}, are {now}"
    if _spec(before) != _spec(after):
        yield f"spec was {_spec(before)}, is {_spec(after)}"


def _spec(node: Manifest) -> Manifest:
    """Without the taint that follows the cordon: the cluster adds and removes it, with a time of its own."""
    taints = [taint for taint in node["spec"].get("taints", []) if taint["key"] != "node.kubernetes.io/unschedulable"]
    return {**node["spec"], "taints": taints}


def _story(product: Installation, trial: Trial) -> str:
    """The steps of the trial's rescues, for whoever looks into a failure."""
    rows = product.rows(
        "SELECT r.id, s.name, s.state, s.attempts, s.because, r.because FROM rescue_step s "
        "JOIN rescue_rescue r ON r.id = s.rescue_id JOIN fleet_node n ON n.id = r.node_id "
        "WHERE n.name = %s ORDER BY r.id, s.index",
        trial.node,
    )
    return "; ".join(str(row) for row in rows)
