"""A real SMTP server on a free port that keeps the mails it gets."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

from django.core.mail.backends import smtp


class Mailbox(socketserver.ThreadingTCPServer):
    """The part of SMTP that a mail needs.

    ``refuse``: what a recipient is answered instead of 250; ``spam``: mails with these bytes are refused for good.
    """

    allow_reuse_address, daemon_threads = True, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Dialogue)
        self.got: list[bytes] = []
        self.recipients: list[str] = []
        self.refuse = ""
        self.spam = b""


class Dialogue(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            verb = line.split(maxsplit=1)[0].upper()
            if verb == "RCPT":
                self.server.recipients.append(line)
                self.say(self.server.refuse or "250 ok")
            elif verb == "DATA":
                self.say("354 go on")
                mail = b"".join(iter(self.rfile.readline, b".\r\n"))
                if self.server.spam and self.server.spam in mail:
                    self.say("554 this is spam")
                    continue
                self.server.got.append(mail)
                self.say("250 taken")
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 ok")

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextlib.contextmanager
def running(settings: Any) -> Iterator[Mailbox]:
    """A server that the portal's settings name until the end."""
    with Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        settings.EMAIL_BACKEND = f"{smtp.__name__}.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = server.server_address
        settings.DEFAULT_FROM_EMAIL = "kcover portal <kcover@portal.example>"
        yield server
        server.shutdown()
        thread.join()
