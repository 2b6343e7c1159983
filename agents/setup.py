"""Putting the agent of this machine together from its settings: which log, which probes, which checks."""

import contextlib
import logging
import pathlib
import time
from collections.abc import Callable
from datetime import UTC, datetime

from agents import config, errors, execute, loop, portal, process, spool, store
from agents.checks import bandwidth, dcgm, gpu_state, iperf, network
from agents.checks.host_lock import HostLock
from agents.checks.runner import Runner
from agents.gpu_count import GpuCount
from agents.gpu_users import GpuUsers
from agents.probes import amd, clock, follow, hardware, infiniband, kubelet, metax, nvme, nvml, sel, storage
from agents.probes.finding import Probe
from agents.probes.gpu.probe import GpuProbe
from agents.rounds import Rounds
from agents.schedule import Round, Schedule
from agents.second_source import SecondSource
from kcover.fault import Inventory

log = logging.getLogger("agents")

FIRST_CHECKS, FIRST_DEEP_CHECKS = 30.0, 300.0  # seconds after the start: the node settles first
SHARED = pathlib.Path("/run/kcover-agent")
DEEP_DIAGNOSIS = {"r": 3}  # DCGM's level on the timer for heavy checks, as Autopilot's
FASTEST_GPU_POLL = 60.0  # NVML for eight GPUs costs tens of ms; a thousandth of a core is all the agent may use


def agent(settings: config.Config) -> tuple[loop.Agent, process.Eyes]:
    """The agent of this machine, and what looks at it. Raises ConfigError for settings that it cannot satisfy, Occupied
    while another agent is at work."""
    uplink, folder = _line(settings)
    checks = runner(settings)
    check_lock(settings).make()
    gpus = gpu_count(settings, folder)
    # The agent needs its executor, which needs to tell the events to let go, which report through the agent.
    events: list[SecondSource] = []
    host = execute.Host(
        reboot_command=settings.reboot_command,
        checks=checks,
        hands_off=lambda: events[0].hands_off() if events else contextlib.nullcontext(),
    )
    made = loop.Agent(
        settings,
        sources=[follow.source(settings.kmsg)],
        clock=now,
        boot_id=settings.read_boot_id,
        inventory=inventory(settings),
        uplink=uplink,
        spool=spool.Spool(folder),
        executor=host,
    )
    if settings.xid_events and settings.vendor == "nvidia":
        events.append(SecondSource(logged=made.logs.told, caught_up=lambda: made.caught_up, keep=made.take, clock=now))
    eyes = process.Eyes(
        rounds=Rounds(probes(settings, gpus=gpus), keep=made.take, clock=now),
        schedule=Schedule(
            timers(settings, gpus=gpus), runner=checks, keep=made.take, clock=now, monotonic=time.monotonic
        ),
        second_source=events[0] if events else None,
    )
    return made, eyes


def inventory(settings: config.Config) -> Callable[[], Inventory]:
    """What asks for this node's GPUs."""
    if settings.vendor == "amd":
        return amd.AmdInventory()
    return metax.inventory if settings.vendor == "metax" else nvml.inventory


def gpu_count(settings: config.Config, folder: store.Store) -> GpuCount:
    """How many GPUs this node must have: what the settings say, else the most that the PCI bus showed (NVIDIA), or that
    the vendor's tool listed."""
    if settings.vendor == "metax":
        given = settings.metax.gpu_count if settings.gpus is None else settings.gpus
        return GpuCount(folder, given=given, bus=lambda: metax.GPUS)
    if settings.vendor == "amd":
        return GpuCount(folder, given=settings.gpus)
    return GpuCount(folder, given=settings.gpus, bus=hardware.gpus_on_the_bus)


def probes(settings: config.Config, *, gpus: GpuCount) -> list[Probe]:
    """What looks at this node, which must have so many ``gpus``. A new probe is named here."""
    vendor: Probe
    if settings.vendor == "metax":
        vendor = metax.MetaXProbe(settings.metax, expected=gpus)
    elif settings.vendor == "amd":
        vendor = amd.AmdProbe(expected=gpus)
    else:
        poll = max(settings.interval.total_seconds(), FASTEST_GPU_POLL)
        vendor = GpuProbe(every=poll, expected=gpus)
    return [
        vendor,
        infiniband.InfinibandProbe(expected=settings.hcas or settings.metax.hca_ids),
        hardware.HardwareProbe(),
        clock.ClockProbe(limit_ms=settings.metax.ntp_max_offset_ms),
        storage.StorageProbe(folders=_folders(settings), mounts=settings.mounts),
        nvme.NvmeProbe(),
        sel.SelProbe(),
        kubelet.KubeletProbe(),
    ]


def runner(settings: config.Config) -> Runner:
    """The checks of this node. A new check is named here."""
    return Runner(
        (
            gpu_state.Remapped(),
            gpu_state.GpuPower(),
            bandwidth.PcieBandwidth(),
            bandwidth.GpuMemory(),
            dcgm.Dcgm(),
            network.Ping(settings.peers),
            iperf.Iperf(),
        ),
        in_use=GpuUsers(beside_monitors=True),
        clock=now,
        lock=check_lock(settings),
    )


def check_lock(settings: config.Config, *, shared: pathlib.Path = SHARED) -> HostLock:
    """What checks on this node lock: what the settings name, else a file in the folder that jobs' containers are given
    too, where there is one, so that a check by hand locks what the agent's unit does."""
    if settings.check_lock is not None:
        return HostLock(path=settings.check_lock, agreed=True)
    if shared.is_dir():
        return HostLock(path=shared / "checks.lock", agreed=True)
    return HostLock(path=settings.spool / "checks.lock")


def timers(settings: config.Config, *, gpus: Callable[[], int]) -> list[Round]:
    """Which checks run by themselves. NVIDIA's need its GPUs: elsewhere they would only say ``skipped`` each hour."""
    nvidia = settings.vendor == "nvidia" and gpus() > 0
    light = settings.checks if nvidia else tuple(name for name in settings.checks if name in ("ping", "iperf"))
    if settings.peers and "ping" not in light:
        light = (*light, "ping")
    return [
        Round(names=light, every=settings.check_interval.total_seconds(), first=FIRST_CHECKS, args={}),
        Round(
            names=settings.deep_checks,
            every=settings.deep_interval.total_seconds(),
            first=FIRST_DEEP_CHECKS,
            args=DEEP_DIAGNOSIS,
        ),
    ]


def now() -> datetime:
    """The agent's clock."""
    return datetime.now(UTC)


def _folders(settings: config.Config) -> tuple[pathlib.Path, ...]:
    return pathlib.Path("/"), pathlib.Path("/var/lib/kubelet"), settings.spool


def _line(settings: config.Config) -> tuple[portal.Portal, store.Folder]:
    if not settings.url:
        raise errors.ConfigError("KCOVER_AGENT_URL: accepted is the portal's address, such as https://portal.example")
    for name in settings.unknown:
        log.warning("settings: %s is not known", name)
    try:
        given = settings.read_token()
    except FileNotFoundError:  # an enrolment token may be taken away after its use
        given = ""
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_TOKEN_FILE: {error}") from error
    try:
        settings.read_boot_id()
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_BOOT_ID: {error}; accepted is a file with the boot id") from error
    try:
        folder = store.Folder(settings.spool)
    except BlockingIOError as error:
        raise errors.Occupied(f"KCOVER_AGENT_SPOOL={settings.spool}: another agent uses it") from error
    except OSError as error:
        raise errors.ConfigError(f"KCOVER_AGENT_SPOOL={settings.spool}: {error}") from error
    try:
        uplink = portal.Portal(
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
        where = f"; there is none in {settings.token_file}" if settings.token_file else ""
        raise errors.ConfigError(
            f"KCOVER_AGENT_TOKEN (or _FILE): accepted is an agent's or an enrolment token{where}. None is needed where "
            f"the node has enrolled before, but {settings.spool} has no credential of {settings.node}"
        )
    return uplink, folder
