"""The WebSocket of open pages: it reports which record changed, never its content."""

import asyncio
import logging
from collections import Counter
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User
from kcover_portal.lib import doorbell

log = logging.getLogger(__name__)

CLOSE_CODE_SIGNED_OUT = 4401  # the page reloads, and is redirected to sign in
CLOSE_CODE_TOO_MANY = 4429
CLOSE_CODE_ERROR = 1011  # the page connects again

_open: Counter[str | None] = Counter()  # sockets of this process by session


class PagesConsumer(AsyncJsonWebsocketConsumer):
    """One open page.

    Frames are ``{"t": topic, "id": record}``; id 0 means several records of the topic, topic ``resync`` means all
    records, and topic ``beat`` none. A page that hears nothing for 12 s takes the connection for dead: a server that
    hangs does not close it.
    """

    flush_seconds = 0.2  # at most five rounds of frames a second, even in a storm
    several = 20  # more records of one topic in a round are sent as one frame
    recheck_seconds = 60.0
    max_per_session = 40  # open pages of one browser in this process; a page without a socket polls
    max_received = 20  # messages of one page
    beat_seconds = 5.0

    async def connect(self) -> None:
        """Accept the page of a signed-in person, and start to recheck the session."""
        self.waiting: dict[str, set[int | str]] = {}
        self.flushing: asyncio.Task[None] | None = None
        self.watching: asyncio.Task[None] | None = None
        self.beating: asyncio.Task[None] | None = None
        self.received = 0
        self.counted = False
        session = self.scope.get("session")
        self.session_key: str | None = session.session_key if session else None
        if not _same_site(dict(self.scope["headers"])):
            await self.close()
            return
        if _open[self.session_key] >= self.max_per_session:
            await self.close()
            return
        _open[self.session_key] += 1
        self.counted = True
        await self.accept()
        if not await self._reload():
            await self.close(CLOSE_CODE_SIGNED_OUT)
            return
        await self.channel_layer.group_add(doorbell.PAGES, self.channel_name)
        # From here on the page gets every change. Changes since it was rendered may have been missed.
        await self.send_json({"t": "resync", "id": 0})
        self.watching = asyncio.create_task(self._watch())
        self.beating = asyncio.create_task(self._beat())

    async def disconnect(self, code: int) -> None:
        """Cancel the tasks of this page."""
        if self.counted:
            self.counted = False
            _open[self.session_key] -= 1
            if not _open[self.session_key]:
                del _open[self.session_key]
        for task in (self.flushing, self.watching, self.beating):
            if task is not None:
                task.cancel()
        await self.channel_layer.group_discard(doorbell.PAGES, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Ignore messages, of which pages send none. The web server bounds the size of each (``--ws-max-size``)."""
        self.received += 1
        if self.received == self.max_received + 1:  # once: what follows is on its way already
            await self.close(CLOSE_CODE_TOO_MANY)

    async def records_written(self, message: dict[str, Any]) -> None:
        """Queue signals about visible clusters until the next flush."""
        for record in message["records"]:
            cluster = record["cluster"]
            if not cluster or self.clusters is None or cluster in self.clusters:
                self.waiting.setdefault(str(record["topic"]), set()).add(record["id"])
            elif cluster in self.in_part:  # which record it was stays hidden: it may be of another pool
                self.waiting.setdefault(str(record["topic"]), set()).add(0)
        if self.waiting and (self.flushing is None or self.flushing.done()):
            self.flushing = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        while self.waiting:  # also what arrives while this round is sent
            await asyncio.sleep(self.flush_seconds)
            waiting, self.waiting = self.waiting, {}
            for topic, records in waiting.items():
                for record in records if len(records) <= self.several else {0}:
                    await self.send_json({"t": topic, "id": record})

    async def _watch(self) -> None:
        """Close the socket within a minute of the session's end or of a change of password or role.

        Also if that cannot be read: the page connects again, and is asked again.
        """
        while True:
            await asyncio.sleep(self.recheck_seconds)
            try:
                may_go_on = await self._reload()
            except Exception:
                log.exception("the session of a page could not be read again")
                await self.close(CLOSE_CODE_ERROR)
                return
            if not may_go_on:
                await self.close(CLOSE_CODE_SIGNED_OUT)
                return

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.beat_seconds)
            await self.send_json({"t": "beat", "id": 0})

    async def _reload(self) -> bool:
        """Reload the session, the person and the visible clusters; False if access has ended."""
        seen = await database_sync_to_async(_visible)(self.session_key)
        if seen is None:
            return False
        self.clusters, self.in_part = seen
        return True


def _same_site(headers: dict[bytes, bytes]) -> bool:
    """Returns whether the request's Origin is this portal or a trusted origin."""
    origin, host = headers.get(b"origin", b"").decode("latin-1"), headers.get(b"host", b"").decode("latin-1")
    return not origin or urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS


def _visible(session_key: str | None) -> tuple[frozenset[str] | None, frozenset[str]] | None:
    """(names of the visible clusters, None: all; names of those with visible pools).

    None without a signed-in person who has a role.
    """
    if session_key is None:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    if not isinstance(user, User) or not accounts.may_somewhere(user, Role.VIEWER):
        return None
    seen = accounts.scope(user)
    if seen.wide:
        return None, frozenset()
    names = dict(seen.clusters().values_list("pk", "name"))
    whole = frozenset(name for pk, name in names.items() if pk in seen.whole)
    return whole, frozenset(names.values()) - whole
