"""The IPMI driver against pyghmi's own server, as a process over UDP, and against controllers that misbehave."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcover.machines import machine_drivers
from kcover_portal.machines.drivers import Machine, Power, Seen, Switched, Unreadable, child_process, ipmi
from tests.portal.machines import bmc_server

UUID = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
ON = Seen(power=Power.ON)


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)


def machine_at(url: str, *, password: str = bmc_server.PASSWORD, seconds: float = 10) -> Machine:
    return Machine(url=url, username=bmc_server.USERNAME, password=password, seconds=seconds)


def effect(answer: Switched) -> tuple[bool, bool, bool]:
    return answer.taken, answer.unclear, answer.later


def children() -> set[str]:
    return {line for path in Path("/proc/self/task").glob("*/children") for line in path.read_text().split()}


def test_a_machine_is_seen_and_switched_off_and_on() -> None:
    with bmc_server.running("plain", UUID) as bmc:
        before, machine = children(), machine_at(bmc.url)
        seen = ipmi.look(machine)
        assert seen.power is Power.ON
        assert machine_drivers.same_machine(seen.uuid, UUID)
        assert effect(ipmi.switch(machine, seen, Power.OFF)) == (True, False, False)
        assert ipmi.look(machine).power is Power.OFF
        assert effect(ipmi.switch(machine, seen, Power.ON)) == (True, False, False)
        assert ipmi.look(machine).power is Power.ON
        assert children() == before
        assert bmc.stop() == ["off", "on"]


def test_a_wrong_password_is_a_lasting_error_and_switches_nothing() -> None:
    with bmc_server.running("plain", UUID) as bmc:
        machine = machine_at(bmc.url, password="wrong")
        with pytest.raises(Unreadable) as refused:
            ipmi.look(machine)
        assert (refused.value.reason.code, refused.value.lasting) == ("ipmi_credentials", True)
        assert effect(ipmi.switch(machine, ON, Power.OFF)) == (False, False, False)
        assert bmc.stop() == []


def test_a_machine_that_was_swapped_since_the_look_is_not_switched() -> None:
    with bmc_server.running("swapped", UUID) as bmc:
        machine = machine_at(bmc.url)
        answer = ipmi.switch(machine, ipmi.look(machine), Power.OFF)
        assert (effect(answer), answer.reason.code) == ((False, False, False), "ipmi_another_machine")
        assert bmc.stop() == []


@pytest.mark.parametrize(
    ("mode", "expected", "code"),
    [
        ("lost", (False, True, False), "host_too_slow"),
        ("busy", (False, False, True), "ipmi_answered"),
        ("refuses", (False, False, False), "ipmi_answered"),
        ("no_response", (False, True, False), "ipmi_answered"),
    ],
)
def test_a_request_is_sent_once_and_its_result_is_classified(
    mode: str, expected: tuple[bool, bool, bool], code: str
) -> None:
    with bmc_server.running(mode, UUID) as bmc:
        answer = ipmi.switch(machine_at(bmc.url, seconds=4), ON, Power.OFF)
        assert (effect(answer), answer.reason.code) == (expected, code)
        assert bmc.stop() == (["off"] if mode == "lost" else [])


# --- what is not IPMI


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


def url_of(udp: socket.socket) -> str:
    return f"ipmi://127.0.0.1:{udp.getsockname()[1]}"


def test_silence_ends_at_the_deadline_and_leaves_no_process(udp: socket.socket) -> None:
    before = children()
    with pytest.raises(Unreadable) as silent:
        ipmi.look(machine_at(url_of(udp), seconds=1))
    assert (silent.value.reason.code, silent.value.lasting) == ("host_too_slow", False)
    assert effect(ipmi.switch(machine_at(url_of(udp), seconds=1), ON, Power.OFF)) == (False, False, True)
    assert children() == before


@pytest.mark.parametrize(
    "answer",
    [
        b"\x06\x00\xff\x07" + b"\x00" * 9 + b"\x08" + b"\x81\x1c\x63\x20\x00\x38\x00\x00",  # a short answer in its form
        b"\x06\x00\xff\x07\x06\x11",  # cut off within the header
        b"\x06\x00\xff\x07" + bytes(range(64)),
    ],
)
def test_an_invalid_response_is_unreadable(udp: socket.socket, answer: bytes) -> None:
    def reply() -> None:
        udp.settimeout(5)
        while True:
            try:
                udp.sendto(answer, udp.recvfrom(1000)[1])
            except OSError:
                return

    thread = threading.Thread(target=reply, daemon=True)
    thread.start()
    with pytest.raises(Unreadable):
        ipmi.look(machine_at(url_of(udp), seconds=1))


def test_a_blocked_address_receives_no_packet(udp: socket.socket, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ()
    with pytest.raises(Unreadable) as blocked:
        ipmi.look(machine_at(url_of(udp)))
    assert blocked.value.reason.code == "address_blocked"
    assert effect(ipmi.switch(machine_at(url_of(udp)), ON, Power.OFF)) == (False, False, True)
    udp.setblocking(False)
    with pytest.raises(BlockingIOError):
        udp.recvfrom(1)


# --- the process


def program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "program.py"
    path.write_text(text)
    return path


def test_the_process_has_no_arguments_and_no_environment(tmp_path: Path) -> None:
    os.environ["KCOVER_TEST_SECRET"] = "hush"
    try:
        told = program(tmp_path, "import os, sys; print(sys.argv[1:], dict(os.environ), len(sys.stdin.read()))")
        said = child_process.run(told, b"x" * 3000, seconds=10, most=1000).decode()
    finally:
        del os.environ["KCOVER_TEST_SECRET"]
    assert said.startswith("[]")
    assert "hush" not in said
    assert said.strip().endswith("3000")


def test_a_process_with_many_open_files_reads_the_output(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1030)]
    try:
        assert child_process.run(program(tmp_path, "print('here')"), b"", seconds=10, most=100) == b"here\n"
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_endless_output_is_cut_and_a_hung_process_is_killed_with_its_children(tmp_path: Path) -> None:
    before = children()
    endless = program(tmp_path, "while True: print('x' * 999)")
    assert len(child_process.run(endless, b"", seconds=10, most=5000)) == 5000
    hung = program(tmp_path, "import os, time; os.fork(); print(os.getpid(), flush=True); time.sleep(600)")
    pids = child_process.run(hung, b"", seconds=1, most=100).split()
    assert children() == before
    for pid in map(int, pids):
        until = time.monotonic() + 5
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            assert time.monotonic() < until
            time.sleep(0.05)
