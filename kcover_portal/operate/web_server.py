"""``python -m kcover_portal.operate.web_server``: the process ``web``, which is a server in several processes.

uvicorn starts a process that has ended again at once, for ever, and ends with 0 where that makes no sense. Here, one
that fails before it serves waits longer each time, and invalid settings end the whole with a status of their own.
"""

import argparse
import logging
import pickle  # nosec B403
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.conf import settings
from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from kcover.values import back_off

log = logging.getLogger("uvicorn.error")

APPLICATION: Final = "kcover_portal.asgi.web:application"
PROCESSES: Final = 2
HUNG_SECONDS: Final = 30  # without an answer, until a process is killed
END_SECONDS: Final = 5  # for the requests of a process that is to end
SPARE_SECONDS: Final = 3  # for its end after that
LEAST_WAIT: Final = timedelta(seconds=1)
MOST_WAIT: Final = timedelta(seconds=30)


class Supervisor(Multiprocess):
    """Keeps the processes running. ``status``: with which the whole ends."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, [config.bind_socket()])
        self.status = 0
        self._failures = 0  # processes that ended before they served, since one has served
        self._served: set[Process] = set()
        self._asked: dict[Process, float] = {}  # since when each owes an answer, on the monotonic clock
        self._due: dict[Process, float] = {}  # in place of those that have ended, on the monotonic clock

    def keep_subprocess_alive(self) -> None:
        """Starts what has ended again: at once what has served before, and the others after a while."""
        for place, process in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if process not in self._due:
                if self._is_alive(process):
                    continue
                self._end(process)
            if not self.should_exit.is_set() and time.monotonic() >= self._due[process]:
                del self._due[process]
                self.processes[place] = Process(self.config, self.sockets)
                self.processes[place].start()

    def handle_hup(self) -> None:
        """Nothing, as for the two below: the handlers of uvicorn wait for a process that hangs."""

    handle_ttin = handle_ttou = handle_hup

    def join_all(self) -> None:
        """Waits for the processes, which were told to end, and kills those that do not."""
        until = time.monotonic() + END_SECONDS + SPARE_SECONDS
        for process in self.processes:
            process.process.join(max(0.0, until - time.monotonic()))
            if process.process.is_alive():
                log.error("A server process does not end (pid %s). It is killed.", process.pid)
                process.kill()
                process.join()

    def _is_alive(self, process: Process) -> bool:
        """Returns whether the process runs and has answered of late. Never waits: SIGTERM is handled at once."""
        now = time.monotonic()
        try:
            if process in self._asked and process.parent_conn.poll():
                self._note(process, started=process.parent_conn.recv())
                del self._asked[process]
            if process not in self._asked:
                process.parent_conn.send(b"ping")
                self._asked[process] = now
        except (OSError, EOFError, pickle.UnpicklingError):
            return False
        return process.process.is_alive() and now - self._asked[process] < self.config.timeout_worker_healthcheck

    def _note(self, process: Process, *, started: bool) -> None:
        if started and process not in self._served:
            self._served.add(process)
            self._failures = 0

    def _end(self, process: Process) -> None:
        """Ends a process that does not answer, if it has not ended, and decides when another one takes its place."""
        process.kill()
        process.join()
        self._asked.pop(process, None)
        if process.exitcode == STARTUP_FAILURE:  # the next one would fail in the same way
            log.error("A server process cannot start, so web ends.")
            self.status = STARTUP_FAILURE
            self.should_exit.set()
            return
        wait = timedelta()
        if process in self._served:
            self._served.remove(process)
        else:
            self._failures += 1
            wait = back_off.doubled(self._failures, least=LEAST_WAIT, most=MOST_WAIT)
            log.error("A server process failed to start (%s). The next one starts in %s.", process.exitcode, wait)
        self._due[process] = time.monotonic() + wait.total_seconds()


def serve(arguments: Sequence[str], *, application: str = APPLICATION, hung_seconds: int = HUNG_SECONDS) -> int:
    """Serves until SIGTERM or Ctrl-C. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m kcover_portal.operate.web_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port (8080)")
    parser.add_argument("--fd", type=int, help="listen on this open socket instead")
    parser.add_argument(
        "--timeout-keep-alive", type=int, default=30, help="seconds that idle connections are kept (30)"
    )
    given = parser.parse_args(arguments)
    config = Config(
        application,
        host=given.host,
        port=given.port,
        fd=given.fd,
        http="kcover_portal.asgi.http_protocol:DeadlineProtocol",
        ws="none",
        lifespan="off",
        workers=PROCESSES,
        timeout_worker_healthcheck=hung_seconds,
        log_level="warning",
        access_log=False,
        # The address of the client comes from KCOVER_TRUSTED_PROXIES alone; uvicorn would believe this machine, too.
        proxy_headers=False,
        limit_concurrency=16_000,
        timeout_keep_alive=given.timeout_keep_alive,
        timeout_graceful_shutdown=END_SECONDS,
    )
    supervisor = Supervisor(config)
    supervisor.run()
    return supervisor.status


def main() -> None:
    """Ends with 2 and one line, before any process, if the settings are invalid."""
    bool(settings.DEBUG)  # reading one setting reads all
    sys.exit(serve(sys.argv[1:]))


if __name__ == "__main__":
    main()
