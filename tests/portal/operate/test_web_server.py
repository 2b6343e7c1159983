"""The web server: which requests reach the pages, and with what; clients that hang up; its several processes."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from uvicorn.config import STARTUP_FAILURE

from kcover_portal.operate.web_server import HUNG_SECONDS
from tests import waiting
from tests.portal.operate.raw_http import ROOT, answer, on_the_way, run_server, running, slow

pytestmark = pytest.mark.slow
ECHO = "tests.portal.operate.echo:application"
POST = "POST / HTTP/1.1\r\nHost: x\r\n"
STARTS = "from kcover_portal.operate.web_server import serve"
CHUNKS = "5\r\n12345\r\n0\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("echo")


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with running(ECHO, folder, TEST_FOLDER=str(folder)) as free:
        yield free


def asked(port: int, text: str) -> dict[str, Any]:
    """What the pages see of a request."""
    status, body = answer(port, text)
    assert status == 200, body
    return json.loads(body)


@pytest.mark.parametrize(
    "text",
    [
        "GET /\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        f"{POST}Content-Type: a\r\nContent-Type: b\r\nContent-Length: 0\r\n\r\n",
        f"{POST}Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345",
        f"{POST}Content-Length: +5\r\n\r\n12345",
        f"{POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}\r\n",
        f"{POST}Transfer-Encoding: gzip, chunked\r\n\r\n{CHUNKS}\r\n",
        f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}\r\n",
        f"{POST}Transfer-Encoding: chunked, identity\r\n\r\n{CHUNKS}\r\n",
        f"{POST}Transfer-Encoding : chunked\r\n\r\n{CHUNKS}\r\n",
        f"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}\r\n",
        f"{POST}Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\n",
        f"{POST}Transfer-Encoding: chunked\r\n\r\n5\n12345\n0\n\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\rb\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + 70_000 * "a" + "\r\n\r\n",
    ],
)
def test_a_request_that_a_proxy_could_read_differently_is_refused(port: int, text: str) -> None:
    assert answer(port, text)[0] in (400, 431)


def test_a_head_that_never_ends_is_refused(port: int) -> None:
    with closing(slow(port, "GET / HTTP/1.1\r\nHost: x\r\nX-A: ")) as client:
        for _ in range(8):
            client.sendall(10_000 * b"a")
            waiting.until(lambda: not on_the_way(port), "the server to read")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 431


def test_pages_do_not_see_names_that_a_proxy_does_not_set(port: int) -> None:
    """WSGI takes an underscore for a hyphen; a proxy replaces or extends the name with hyphens only."""
    forged = "X_Forwarded_For: 9.9.9.9\r\nX_Forwarded_Proto: https\r\nContent_Length: 7\r\n"
    seen = asked(port, f"GET / HTTP/1.1\r\nHost: x\r\n{forged}X-Forwarded-For: 1.1.1.1\r\n\r\n")
    assert seen["HTTP_X_FORWARDED_FOR"] == "1.1.1.1"
    assert not {"HTTP_X_FORWARDED_PROTO", "HTTP_CONTENT_LENGTH", "CONTENT_LENGTH"} & set(seen)


def test_trailers_of_a_chunked_body_are_no_headers(port: int) -> None:
    seen = asked(port, f"{POST}Transfer-Encoding: chunked\r\n\r\n{CHUNKS}X-Forwarded-For: 9.9.9.9\r\n\r\n")
    assert (seen["body"], seen["CONTENT_LENGTH"]) == ("12345", "5")
    assert "HTTP_X_FORWARDED_FOR" not in seen


def test_the_peer_is_the_one_of_the_connection(port: int) -> None:
    """Who is trusted is ``KCOVER_TRUSTED_PROXIES``, not what the server takes for a proxy."""
    forwarded = "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n"
    assert asked(port, f"GET / HTTP/1.1\r\nHost: x\r\n{forwarded}\r\n")["REMOTE_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize("path", ["/endless", "/wrong-length"])
def test_a_response_that_is_not_read_ends(port: int, folder: Path, path: str) -> None:
    for _ in range(3):  # more than there are threads
        (folder / "ended").unlink(missing_ok=True)
        with closing(slow(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")) as client:
            assert client.recv(100)
        waiting.until((folder / "ended").exists, "the answer to end")
    assert asked(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")["REQUEST_METHOD"] == "GET"


def test_an_answer_that_is_handed_on_ends_with_its_client(port: int, folder: Path) -> None:
    with running("kcover_portal.asgi:application", folder, KCOVER_WEB_URL=f"http://127.0.0.1:{port}") as front:
        (folder / "ended").unlink(missing_ok=True)
        with closing(slow(front, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")) as client:
            assert client.recv(1000)
        waiting.until((folder / "ended").exists, "the answer to end")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, psutil.Process]]:
    with serving(tmp_path) as found:
        yield found


@contextmanager
def serving(folder: Path, *, hung_seconds: int = HUNG_SECONDS) -> Iterator[tuple[int, psutil.Process]]:
    """The main process of two, and their port."""

    def command_of(fd: int) -> list[str]:
        return several(ECHO, "--fd", str(fd), hung_seconds=hung_seconds)

    with run_server(command_of, TEST_FOLDER=str(folder)) as free:
        [main] = [one for one in psutil.Process().children() if STARTS in command(one)]
        yield free, main


def command(process: psutil.Process) -> str:
    """Its command line; "" of one that has ended."""
    return " ".join(process.as_dict(["cmdline"], ad_value=[])["cmdline"])


def several(application: str, *options: str, hung_seconds: int = HUNG_SECONDS) -> list[str]:
    """The command of ``web`` with another application."""
    call = f"serve(sys.argv[1:], application={application!r}, hung_seconds={hung_seconds})"
    return [sys.executable, "-c", f"{STARTS}; import sys; sys.exit({call})", *options]


def workers(main: psutil.Process) -> set[int]:
    found = set()
    for one in main.children():
        with suppress(psutil.NoSuchProcess):  # it ends just now
            if one.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(one.cmdline()):
                found.add(one.pid)
    return found


def test_a_process_that_ends_is_started_again(server: tuple[int, psutil.Process]) -> None:
    port, main = server
    before = workers(main)
    assert len(before) == 2
    os.kill(min(before), signal.SIGKILL)
    waiting.until(lambda: len(workers(main) - before) == 1, "another process")
    pids: set[int] = set()

    def all_answer() -> bool:
        pids.add(asked(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")["pid"])
        return pids == workers(main)

    waiting.until(all_answer, "both processes to answer")


def test_a_process_that_hangs_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, hung_seconds=15) as (_, main):
        before = workers(main)
        os.kill(min(before), signal.SIGSTOP)
        waiting.until(lambda: min(before) not in workers(main) and len(workers(main)) == 2, "another process")
        assert max(before) in workers(main)


def test_a_process_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, hung_seconds=10 * int(waiting.HANG_SECONDS)) as (_, main):
        os.kill(min(workers(main)), signal.SIGSTOP)
        main.send_signal(signal.SIGHUP)
        main.terminate()
        assert not psutil.wait_procs([main], waiting.HANG_SECONDS)[1]


def test_requests_end_before_the_processes_do(server: tuple[int, psutil.Process], tmp_path: Path) -> None:
    port, main = server
    with closing(slow(port, "GET /slow?2 HTTP/1.1\r\nHost: x\r\n\r\n")) as client:
        waiting.until((tmp_path / "begun").exists, "the request to begin")
        main.terminate()
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 200
        assert response.headers["connection"] == "close"
    main.wait(waiting.HANG_SECONDS)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts ``web`` with processes that fail at their start with this status."""
    started = []

    def start(status: int) -> subprocess.Popen[bytes]:
        own = {"TEST_FOLDER": str(tmp_path), "TEST_STATUS": str(status)}
        command = several("tests.portal.operate.unready:application", "--port", "0")
        started.append(subprocess.Popen(command, cwd=ROOT, env=os.environ | own, stderr=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(waiting.HANG_SECONDS)


def starts(folder: Path) -> list[float]:
    file = folder / "starts"
    return [float(line) for line in file.read_text().split()] if file.exists() else []


def test_a_process_that_fails_to_start_waits_longer_each_time(failing: Any, tmp_path: Path) -> None:
    main = failing(0)
    waiting.until(lambda: len(starts(tmp_path)) >= 5, "three more than at first")
    first, *_, last = starts(tmp_path)[:5]
    assert last - first >= 5  # seconds: one, and four after the third failure
    main.terminate()
    assert main.wait(waiting.HANG_SECONDS) == 0


def test_web_ends_with_a_status_if_no_process_can_start(failing: Any, tmp_path: Path) -> None:
    assert failing(STARTUP_FAILURE).wait(waiting.HANG_SECONDS) == STARTUP_FAILURE
    assert len(starts(tmp_path)) <= 2
