"""Build the agent of this machine from its settings: log, probes, checks, executor, uplink."""

import contextlib
import logging
import pathlib
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from agents import config, errors, supervisor
from agents.agent import Agent
from agents.checks import bandwidth, dcgm, gpu_state, iperf, ping
from agents.checks.check_runner import CheckRunner
from agents.checks.host_lock import HostLock
from agents.checks.schedule import CheckSchedule, ScheduledChecks
from agents.commands import executor
from agents.evidence.collector import Collector, clear
from agents.host import store
from agents.outbox import spool
from agents.outbox.evidence_files import EvidenceFiles
from agents.outbox.preflight_files import PreflightFiles
from agents.probes.finding import Probe
from agents.probes.gpu import amd, metax, nvml
from agents.probes.gpu.expected_count import ExpectedGpuCount
from agents.probes.gpu.gpu_users import GpuUsers
from agents.probes.gpu.nvidia import NvidiaProbe
from agents.probes.gpu.nvml_events import XidEventMonitor
from agents.probes.host import clock, hardware, infiniband, kubelet, nvme, sel, serials, storage
from agents.probes.log import sources
from agents.probes.probe_runner import ProbeRunner
from agents.uplink import http
from kcover.faults.fault import Inventory

log = logging.getLogger("agents")

FIRST_CHECKS_SECONDS, FIRST_DEEP_CHECKS_SECONDS = 30.0, 300.0  # after the start, so that the node can settle
EVIDENCE_FOLDER = "evidence"  # in the spool
SHARED_FOLDER = pathlib.Path("/run/kcover-agent")
DEEP_CHECK_ARGS = {"r": 3}  # DCGM level of deep checks on the timer, as in Autopilot
MIN_GPU_POLL_SECONDS = 60.0  # reading eight GPUs takes tens of ms; the agent may use a thousandth of a core


def build_agent(settings: config.Config) -> tuple[Agent, supervisor.Monitors]:
    """The agent of this machine and its monitors. Raises ConfigError for settings that this machine cannot satisfy,
    AlreadyRunning while another agent is running."""
    uplink, folder = connect(settings)
    checks = check_runner(settings, fetch_peers=uplink.fetch_peers)
    check_lock(settings).create()
    gpus = expected_gpus(settings, folder)
    collector, bundles = evidence(settings, uplink)
    # The executor must be able to stop the Xid events, and they report to the agent, which needs the executor first.
    events: list[XidEventMonitor] = []
    host_executor = executor.HostExecutor(
        reboot_command=settings.reboot_command,
        checks=checks,
        release_gpus=lambda: events[0].release_gpus() if events else contextlib.nullcontext(),
        evidence=lambda name: collected(collector, bundles, name),
    )
    agent = Agent(
        settings,
        sources=[sources.source_for(settings.kmsg)],
        clock=now,
        boot_id=settings.read_boot_id,
        inventory=inventory(settings),
        uplink=uplink,
        spool=spool.Spool(folder),
        executor=host_executor,
    )
    if settings.xid_events and settings.vendor == "nvidia":
        events.append(
            XidEventMonitor(
                seen_in_log=agent.logs.has_seen_xid, caught_up=lambda: agent.caught_up, sink=agent.record, clock=now
            )
        )
    monitors = supervisor.Monitors(
        probes=ProbeRunner(probes(settings, gpus=gpus), sink=agent.record, observed=agent.figures.note, clock=now),
        checks=CheckSchedule(
            check_timers(settings, gpus=gpus), runner=checks, sink=agent.record, clock=now, monotonic=time.monotonic
        ),
        xid_events=events[0] if events else None,
        preflight=preflight_files(settings, folder, uplink),
        evidence=bundles,
    )
    return agent, monitors


def evidence(settings: config.Config, uplink: http.HttpUplink) -> tuple[Collector, EvidenceFiles]:
    """The collector of evidence, and the bundles that wait for the portal."""
    folder = settings.spool / EVIDENCE_FOLDER
    clear(folder)
    collector = Collector(folder, kernel_log=settings.kmsg, boot_id=settings.read_boot_id)
    return collector, EvidenceFiles(folder, uplink=uplink, clock=now)


def collected(collector: Collector, bundles: EvidenceFiles, name: uuid.UUID) -> Mapping[str, Any]:
    """Collect a bundle and begin its upload; return what the command reports. Raises OSError."""
    output = collector.collect(name).output()
    bundles.wake()
    return output


def inventory(settings: config.Config) -> Callable[[], Inventory]:
    """The function that reads this node's GPUs, and the serial numbers of its other parts."""
    if settings.vendor == "amd":
        return serials.WithSerials(amd.AmdInventory())
    return serials.WithSerials(metax.inventory if settings.vendor == "metax" else nvml.inventory)


def preflight_files(settings: config.Config, folder: store.Store, uplink: http.HttpUplink) -> PreflightFiles | None:
    """The pick-up of kcover's preflight reports; None if it is switched off."""
    if settings.preflight is None:
        return None
    return PreflightFiles(settings.preflight, node=settings.node, store=folder, uplink=uplink, clock=now)


def expected_gpus(settings: config.Config, folder: store.Store) -> ExpectedGpuCount:
    """The number of GPUs that this node must have: the configured number, else the most ever seen on the PCI bus
    (NVIDIA) or listed by the vendor's tool.
    """
    if settings.vendor == "metax":
        configured = settings.metax.gpu_count if settings.gpus is None else settings.gpus
        return ExpectedGpuCount(folder, configured=configured, count_on_bus=lambda: metax.DEFAULT_GPU_COUNT)
    if settings.vendor == "amd":
        return ExpectedGpuCount(folder, configured=settings.gpus)
    return ExpectedGpuCount(folder, configured=settings.gpus, count_on_bus=hardware.count_nvidia_gpus)


def probes(settings: config.Config, *, gpus: ExpectedGpuCount) -> list[Probe]:
    """The probes of this node. ``gpus``: how many GPUs it must have. Add a new probe here."""
    vendor: Probe
    if settings.vendor == "metax":
        vendor = metax.MetaXProbe(settings.metax, expected=gpus)
    elif settings.vendor == "amd":
        vendor = amd.AmdProbe(expected=gpus)
    else:
        poll = max(settings.interval.total_seconds(), MIN_GPU_POLL_SECONDS)
        vendor = NvidiaProbe(interval_seconds=poll, expected=gpus)
    return [
        vendor,
        infiniband.InfinibandProbe(expected=_adapters(settings)),
        hardware.HardwareProbe(),
        clock.ClockProbe(limit_ms=settings.metax.ntp_max_offset_ms),
        storage.StorageProbe(folders=_folders(settings), mounts=settings.mounts),
        nvme.NvmeProbe(),
        sel.SelProbe(),
        kubelet.KubeletProbe(),
    ]


def _adapters(settings: config.Config) -> tuple[str, ...]:
    """The adapters that must be there. kcover's sample lists some under ``metaX``, whatever GPUs the nodes have."""
    of_metax = settings.metax.hca_ids if settings.vendor == "metax" else ()
    return settings.hcas or of_metax


def check_runner(settings: config.Config, *, fetch_peers: Callable[[], tuple[str, ...]] | None = None) -> CheckRunner:
    """The health checks of this node. ``fetch_peers``: see ``Ping``. Add a new check here."""
    return CheckRunner(
        (
            gpu_state.Remapped(),
            gpu_state.GpuPower(),
            bandwidth.PcieBandwidth(min_gb_per_s=settings.pcie_min_gb_per_s),
            bandwidth.GpuMemory(),
            dcgm.Dcgm(),
            ping.Ping(settings.peers, fetch_peers=fetch_peers),
            iperf.Iperf(),
        ),
        gpu_users=GpuUsers(ignore_monitoring=True),
        clock=now,
        lock=check_lock(settings),
    )


def check_lock(settings: config.Config, *, shared: pathlib.Path = SHARED_FOLDER) -> HostLock:
    """The file that checks on this node lock: the configured one, else a file in the folder that is shared with the
    containers of jobs, if it exists.

    So a check by hand locks the same file as the agent.
    """
    if settings.check_lock is not None:
        return HostLock(path=settings.check_lock, shared=True)
    if shared.is_dir():
        return HostLock(path=shared / "checks.lock", shared=True)
    return HostLock(path=settings.spool / "checks.lock")


def check_timers(settings: config.Config, *, gpus: Callable[[], int]) -> list[ScheduledChecks]:
    """The checks that run on a timer. NVIDIA checks are left out on nodes without NVIDIA GPUs, where they would be
    skipped every hour."""
    nvidia = settings.vendor == "nvidia" and gpus() > 0
    light = settings.checks if nvidia else tuple(name for name in settings.checks if name in ("ping", "iperf"))
    if settings.peers and "ping" not in light:  # peers are an order to ping them
        light = (*light, "ping")
    return [
        ScheduledChecks(
            names=light,
            interval_seconds=settings.check_interval.total_seconds(),
            first_after_seconds=FIRST_CHECKS_SECONDS,
            args={},
        ),
        ScheduledChecks(
            names=settings.deep_checks,
            interval_seconds=settings.deep_interval.total_seconds(),
            first_after_seconds=FIRST_DEEP_CHECKS_SECONDS,
            args=DEEP_CHECK_ARGS,
        ),
    ]


def now() -> datetime:
    return datetime.now(UTC)


def _folders(settings: config.Config) -> tuple[pathlib.Path, ...]:
    return pathlib.Path("/"), pathlib.Path("/var/lib/kubelet"), settings.spool


def connect(settings: config.Config) -> tuple[http.HttpUplink, store.FolderStore]:
    """The uplink and the locked spool folder. Raises ConfigError, AlreadyRunning."""
    if not settings.url:
        raise errors.ConfigError(
            "KCOVER_AGENT_URL is not set: give the address of the portal, such as https://portal.example"
        )
    for name in settings.unknown:
        log.warning("settings: unknown key %s ignored", name)
    try:
        given = settings.read_token()
    except FileNotFoundError:  # an enrolment token may be removed after use
        given = ""
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_TOKEN_FILE: {error}") from error
    try:
        settings.read_boot_id()
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_BOOT_ID: {error}; name a file that holds the boot ID") from error
    try:
        folder = store.FolderStore(settings.spool)
    except BlockingIOError as error:
        raise errors.AlreadyRunning(
            f"KCOVER_AGENT_SPOOL={settings.spool}: another agent is using this folder"
        ) from error
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_SPOOL={settings.spool}: {error}") from error
    try:
        uplink = http.HttpUplink(
            url=settings.url,
            node=settings.node,
            token=settings.read_token,
            store=folder,
            clock=now,
            cluster=settings.cluster,
            ca_file=settings.ca_file,
        )
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_CA_FILE={settings.ca_file}: {error}") from error
    if not given and not uplink.enrolled:
        where = f" ({settings.token_file} holds none)" if settings.token_file else ""
        raise errors.ConfigError(
            f"KCOVER_AGENT_TOKEN (or KCOVER_AGENT_TOKEN_FILE) is not set{where}: give an agent token or an enrolment "
            f"token. A node that has enrolled needs none, but {settings.spool} has no credential of {settings.node}"
        )
    return uplink, folder
