"""Proofs of rescues: how long one takes to verify, and how many forgeries the claims refuse.

The rescues are those of the random walk, in a process with a database in memory: ``python -m bench.rescue_proofs``
prints the figures as JSON.
"""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import result, soak

EPISODES = 12
MIN_STEPS = 50  # an episode without a rescue has no proof
FORGERIES = 10_000  # of each form
MIN_FORGERIES = 10
RUNS = 3  # of each proof; the fastest counts
SEED = "proofs"
FORMS = {
    "signed": "signed with the valid key",
    "rewritten": "every digest computed again and signed with the valid key",
}


def measure(scale: float) -> result.Result:
    """The walk in a process of its own, because its database is another one."""
    counts = {
        "--episodes": result.scaled(EPISODES, scale, least=1),
        "--steps": result.scaled(soak.STEPS, scale, least=MIN_STEPS),
        "--forgeries": result.scaled(FORGERIES, scale, least=MIN_FORGERIES),
    }
    given = [text for name, count in counts.items() for text in (name, str(count))]
    command = [sys.executable, "-m", "bench.rescue_proofs", *given]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = [
        (f"{found['proofs']} proofs, verified", str(found["valid"]), "all"),
        *((f"verification, {name}", value, "") for name, value in result.spread(found["milliseconds"])),
        ("slower than 10 ms", str(sum(one > 10 for one in found["milliseconds"])), "0"),
    ]
    for form, accepted in found["accepted"].items():
        refused = 1 - len(accepted) / found["forgeries"]
        rows.append((f"{found['forgeries']:,} forgeries, {FORMS[form]}: refused", f"{refused:.2%}", "≥ 99.9 %"))
        rows.append(("accepted", ", ".join(sorted(set(accepted))) or "none", ""))
    return result.Result(
        name="Proofs of rescues",
        command="make bench ARGS=rescue-proofs",
        conditions=f"Every rescue of {found['episodes']} episodes of the random walk, {counts['--steps']} steps each. "
        f"CPU time of one core, the fastest of {RUNS} runs. Five kinds of forgeries in turn, without an anchor.",
        rows=rows,
    )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.rescue_proofs", description=__doc__)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--steps", type=int, default=soak.STEPS, help="of an episode")
    parser.add_argument("--forgeries", type=int, default=FORGERIES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak.begin(soak.make_template(Path(folder)))
        genuine = [statements for number in range(options.episodes) for statements in _episode(number, options.steps)]
        print(json.dumps({"episodes": options.episodes, **_figures(genuine, options.forgeries)}))


def _episode(number: int, steps: int) -> Iterator[dict[str, Any]]:
    """The statements about each rescue of an episode."""
    from kcover_portal.rescue.models import Rescue  # noqa: PLC0415  Django is set up by now
    from kcover_portal.rescue.queries import proof  # noqa: PLC0415
    from tests.invariants import episode_end, walk  # noqa: PLC0415

    with walk.fresh_bed() as bed:
        for step in walk.steps_of(f"{SEED} {number}", steps):
            walk.take(bed, step)
        episode_end.settle(bed, random.Random(steps))
        yield from [proof.unsigned(rescue) for rescue in Rescue.objects.all()]


def _figures(genuine: list[dict[str, Any]], count: int) -> dict[str, Any]:
    from tests import forgeries, proofs  # noqa: PLC0415

    documents = [proofs.sign(statements) for statements in genuine]
    seconds, refusals = [], []
    for document in documents:
        taken = []
        for _ in range(RUNS):
            began = time.process_time()
            refusal = proofs.refusal(document)
            taken.append(time.process_time() - began)
        seconds.append(min(taken))
        refusals.append(refusal)
    chance, kinds = random.Random(SEED), list(forgeries.KINDS)
    accepted: dict[str, list[str]] = {form: [] for form in FORMS}
    for form, number in itertools.product(FORMS, range(count)):
        forged, lie = forgeries.forge(genuine, kinds[number % len(kinds)], form=form, chance=chance)
        if not proofs.refusal(proofs.sign(forged)):
            accepted[form].append(lie)
    return {
        "proofs": len(genuine),
        "valid": refusals.count(""),
        "milliseconds": [1000 * one for one in seconds],
        "forgeries": count,
        "accepted": accepted,
    }


if __name__ == "__main__":
    main()
