"""What a trial waits for that was not struck: its rescue, its planned failure, and the locks in the database."""

from collections.abc import Iterator, Mapping

import psycopg

from tests.crash.installation import Installation
from tests.crash.trials import Trial

_RESCUES = (
    "SELECT r.id, r.state, r.hold, r.because ->> 'code', extract(epoch FROM r.due_at - now())::int, "
    "extract(epoch FROM r.lease_until - now())::int FROM rescue_rescue r JOIN fleet_node n ON n.id = r.node_id "
    "WHERE n.name = %s ORDER BY r.id"
)
_STEPS = (
    "SELECT s.name, s.state, s.attempts, s.because ->> 'code' FROM rescue_step s "
    "WHERE s.rescue_id = %s AND s.state <> 'pending' ORDER BY s.index DESC LIMIT 1"
)
_OTHERS = (
    "SELECT 'order', state, because ->> 'code' FROM jobs_joborder WHERE name = %s || '-job' UNION ALL "
    "SELECT 'pair test', t.state, t.because ->> 'code' FROM preflight_pairtest t "
    "JOIN fleet_node n ON n.id IN (t.first_id, t.second_id) WHERE n.name = %s"
)
_WAITS = (
    "SELECT a.pid, pg_blocking_pids(a.pid), left(a.query, 160), "
    "(SELECT string_agg(DISTINCT l.mode || ' of ' || coalesce(l.relation::regclass::text, l.locktype), ', ') "
    "FROM pg_locks l WHERE l.pid = a.pid AND NOT l.granted) "
    "FROM pg_stat_activity a WHERE a.wait_event_type = 'Lock' AND a.datname = current_database()"
)
_HOLDERS = "SELECT pid, state, left(query, 160) FROM pg_stat_activity WHERE pid = ANY(%s)"


def of(product: Installation, trial: Trial, locks: Mapping[int, str] | None = None) -> str:
    """The state of a trial now. ``locks``: the backends by which the matrix holds rows, and whose rows."""
    try:
        return "; ".join([*_fault(product, trial), *_work(product, trial), *_waits(product, locks or {})])
    except (psycopg.OperationalError, OSError) as error:  # a server that was just struck
        return f"unknown: {error}"


def _fault(product: Installation, trial: Trial) -> Iterator[str]:
    pending, hanging = product.faults()
    if trial.node in hanging:
        yield f"its request has hung for {hanging[trial.node]:.1f} s"
    elif trial.node in pending:
        yield "its request has not come"
    else:
        yield "its request has gone on"


def _work(product: Installation, trial: Trial) -> Iterator[str]:
    rescues = product.rows(_RESCUES, trial.node)
    for pk, state, hold, because, due, lease in rescues:
        step = next(iter(product.rows(_STEPS, pk)), None)
        yield f"rescue {pk} {state} hold {hold!r} because {because} due in {due} s lease {lease} s step {step}"
    others = product.rows(_OTHERS, trial.node, trial.node)
    yield from (f"{kind} {state} because {because}" for kind, state, because in others)
    if not rescues and not others:
        yield "it has no rescue"


def _waits(product: Installation, locks: Mapping[int, str]) -> Iterator[str]:
    found = product.rows(_WAITS)
    for pid, blockers, query, lock in found:
        whose = ", ".join(locks.get(blocker, str(blocker)) for blocker in blockers)
        yield f"backend {pid} waits for {lock} held by {whose}: {query}"
    holders = {blocker for _, blockers, _, _ in found for blocker in blockers} - locks.keys()
    for pid, state, query in product.rows(_HOLDERS, list(holders)):
        yield f"backend {pid} is {state}: {query}"
