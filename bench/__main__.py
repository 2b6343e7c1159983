"""``python -m bench [NAME ...]``: runs measurements (all of them without a NAME) and writes bench/RESULTS.md."""

import argparse
from collections.abc import Callable

from bench import (
    capacity,
    console_pages,
    dead_worker,
    drain_reboot_overhead,
    duplicate_storm,
    event_backfill,
    fault_bursts,
    fault_stages,
    line_to_cordon,
    map_frames,
    nodes_at_once,
    noisy_node,
    page_weight,
    pair_verdicts,
    post_to_cordon,
    preflight_verdict,
    probation_replay,
    process_cost,
    report_year,
    rescue_proofs,
    result,
    routine_events,
)
from bench.agents import figures, thousand
from bench.ingest import measure as ingest
from bench.rollout import measure as rollout
from bench.watch_at_size import measure as watch_at_size

# Each is called with the share of its full size.
MEASUREMENTS: dict[str, Callable[[float], result.Result]] = {
    "post-to-cordon": post_to_cordon.measure,
    "fault-stages": fault_stages.measure,
    "line-to-cordon": line_to_cordon.measure,
    "nodes-at-once": nodes_at_once.measure,
    "noisy-node": noisy_node.measure,
    "drain-reboot-overhead": drain_reboot_overhead.measure,
    "idle": process_cost.idle,
    "capacity": capacity.measure,
    "healed-node": process_cost.healed_node,
    "duplicate-storm": duplicate_storm.measure,
    "event-backfill": event_backfill.measure,
    "routine-events": routine_events.measure,
    "fault-bursts": fault_bursts.measure,
    "probation": probation_replay.measure,
    "console-pages": console_pages.measure,
    "page-weight": page_weight.measure,
    "map-frames": map_frames.measure,
    "dead-worker": dead_worker.measure,
    "preflight-verdict": preflight_verdict.measure,
    "pair-verdicts": pair_verdicts.measure,
    "rescue-proofs": rescue_proofs.measure,
    "report-year": report_year.measure,
    "ingest-saturated": ingest.saturated,
    "ingest-steady": ingest.steady,
    "ingest-crashes": ingest.crashes,
    "watch-at-size": watch_at_size.measure,
    "rollout": rollout.measure,
    "agents-1000": thousand.measure,
    "agent-figures": figures.measure,
}


def main() -> None:
    """Runs the named measurements."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASUREMENTS)}; default: all")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="share of the full size, to try a measurement: prints the results without writing them",
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"unknown measurement {', '.join(unknown)}: use {', '.join(MEASUREMENTS)}")
    if not 0 < options.scale <= 1:
        parser.error("--scale must be above 0 and at most 1")
    for name in options.names or list(MEASUREMENTS):
        measured = MEASUREMENTS[name](options.scale)
        if options.scale == 1:
            result.write(measured)
        print(f"{measured.name} ({measured.command}; {result.versions()}):")
        for label, figure, goal in measured.rows:
            print(f"  {label:<44} {figure:<28} {goal}", flush=True)


if __name__ == "__main__":
    main()
