"""The servers of the tests: none fails because another program was faster to take a port."""

import shutil
import socket

import pytest

from tests import servers

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")


class Unlucky(servers.Redis):
    """Chooses these ports first."""

    def __init__(self, *ports: int) -> None:
        super().__init__()
        self.left = list(ports)

    def choose_ports(self) -> None:
        super().choose_ports()
        if self.left:
            self.port = self.left.pop(0)


def test_a_server_whose_port_was_taken_starts_on_another_and_stays_there() -> None:
    with servers.listener() as taken, Unlucky(taken.getsockname()[1]) as server:
        assert not server.left
        port = server.port
        server.kill()
        assert server.start().port == port
        assert server.ready()


def test_a_server_that_finds_no_port_gives_up() -> None:
    with servers.listener() as taken, pytest.raises(servers.ServerError, match="in use"):
        Unlucky(*[taken.getsockname()[1]] * servers.PORT_TRIES).__enter__()


def test_a_port_that_refuses_cannot_be_taken() -> None:
    with servers.refusing_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
