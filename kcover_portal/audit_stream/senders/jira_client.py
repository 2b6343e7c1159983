"""Calls to the REST API of Jira Cloud, version 3, under the rules of outgoing calls."""

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from kcover import reasons
from kcover.repairs import ticket_text
from kcover_portal.audit_stream.senders.delivery_error import DeliveryError
from kcover_portal.lib import outgoing

API: Final = "/rest/api/3"
CALL_SECONDS: Final = 10.0  # for one call
MAX_ANSWER: Final = 2 * 1024 * 1024  # bytes
MAX_ERROR: Final = 300  # characters of Jira's own words
NOT_FOUND: Final = 404
OK: Final = range(200, 300)
REFUSED: Final = frozenset(range(400, 500)) - {408}  # nothing was done; 408 leaves it open


class JiraError(DeliveryError):
    """Jira did not do what it was asked. ``arrived``: it may have done it all the same; ``status``: 0 without one."""

    def __init__(self, reason: reasons.Reason, *, arrived: bool, status: int = 0, wait: float = 0) -> None:
        super().__init__(reason, wait=wait)
        self.arrived = arrived
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Calls within ``seconds`` altogether, from its creation. All raise JiraError."""

    address: str
    user: str = ""
    token: str = field(repr=False)
    seconds: float
    _began: float = field(default_factory=time.monotonic, init=False)

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    def search(self, jql: str) -> list[tuple[str, str]]:
        """The keys and ids of the issues that were found, at most two."""
        asked = {"jql": jql, "maxResults": 2, "fields": ["status"]}
        call = "search"
        return [
            (self._text(issue, "key", call), self._text(issue, "id", call))
            for issue in self._list(self._post("search/jql", asked, call), "issues", call)
        ]

    def create(self, fields: dict[str, Any]) -> tuple[str, str]:
        """Creates an issue. Returns its key and its id."""
        made = self._post("issue", {"fields": fields}, "create")
        return self._text(made, "key", "create"), self._text(made, "id", "create")

    def comment(self, issue: str, body: dict[str, Any]) -> None:
        self._post(f"issue/{quote(issue, safe='')}/comment", {"body": body}, "comment")

    def comments(self, issue: str) -> list[Any]:
        """The bodies of the newest 50 comments."""
        path = f"issue/{quote(issue, safe='')}/comment?orderBy=-created&maxResults=50"
        found = self._list(self._call("GET", path, None, "comments"), "comments", "comments")
        return [one.get("body") for one in found if isinstance(one, dict)]

    def state(self, issue: str) -> tuple[str, bool]:
        """The name of the issue's state, and whether Jira counts it as done."""
        found = self._call("GET", f"issue/{quote(issue, safe='')}?fields=status", None, "issue")
        try:
            status = found["fields"]["status"]
            return str(status["name"]), status["statusCategory"]["key"] == "done"
        except (KeyError, TypeError) as error:
            raise self._invalid("issue") from error

    def transitions(self, issue: str) -> dict[str, tuple[str, str]]:
        """The possible transitions by name: the id, and the name of the state after it."""
        found = self._list(
            self._call("GET", f"issue/{quote(issue, safe='')}/transitions", None, "transitions"),
            "transitions",
            "transitions",
        )
        try:
            return {str(one["name"]): (str(one["id"]), str(one["to"]["name"])) for one in found}
        except (KeyError, TypeError) as error:
            raise self._invalid("transitions") from error

    def move(self, issue: str, transition: str) -> None:
        """Makes the transition of this id."""
        self._post(f"issue/{quote(issue, safe='')}/transitions", {"transition": {"id": transition}}, "transition")

    def _post(self, path: str, document: dict[str, Any], call: str) -> Any:
        return self._call("POST", path, document, call)

    def _call(self, method: str, path: str, document: dict[str, Any] | None, call: str) -> Any:
        left = self._began + self.seconds - time.monotonic()
        if left <= 0:
            slow = reasons.of("jira_too_slow", host=self.host, seconds=f"{self.seconds:g}")
            raise JiraError(slow, arrived=False)
        body = json.dumps(document, separators=(",", ":")).encode() if document is not None else None
        headers = {"Accept": "application/json", "Authorization": self._authorization()}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        url, seconds = f"{self.address.rstrip('/')}{API}/{path}", min(CALL_SECONDS, left)
        try:
            reply = outgoing.request(method, url, body=body, headers=headers, seconds=seconds, most=MAX_ANSWER)
        except outgoing.NoResponse as error:
            raise JiraError(error.reason, arrived=error.arrived) from error
        if reply.status not in OK:
            said = _explanation(reply.data)
            refused = reasons.of("jira_refused", host=self.host, status=str(reply.status), call=call, text=said)
            raise JiraError(refused, arrived=reply.status not in REFUSED, status=reply.status, wait=reply.wait)
        if not reply.data.strip():
            return None
        try:
            return json.loads(reply.data)
        except (ValueError, RecursionError) as error:
            raise self._invalid(call) from error

    def _authorization(self) -> str:
        """HTTP basic authentication with an account's API token; without an account, a bearer token."""
        if not self.user:
            return f"Bearer {self.token}"
        return "Basic " + base64.b64encode(f"{self.user}:{self.token}".encode()).decode()

    def _list(self, found: Any, name: str, call: str) -> list[Any]:
        listed = found.get(name) if isinstance(found, dict) else None
        if not isinstance(listed, list):
            raise self._invalid(call)
        return listed

    def _text(self, found: Any, name: str, call: str) -> str:
        text = found.get(name) if isinstance(found, dict) else None
        if not isinstance(text, str) or not 0 < len(text) <= 60:
            raise self._invalid(call)
        return text

    def _invalid(self, call: str) -> JiraError:
        return JiraError(reasons.of("jira_answer_invalid", host=self.host, call=call), arrived=True)


def _explanation(data: bytes) -> str:
    """Jira's ``ErrorCollection`` in one line; the beginning of any other answer."""
    try:
        found = json.loads(data)
        said = [*found.get("errorMessages", []), *(f"{name}: {text}" for name, text in found.get("errors", {}).items())]
        text = "; ".join(map(str, said))
    except (ValueError, AttributeError, TypeError, RecursionError):
        text = data[:MAX_ERROR].decode(errors="replace")
    return ticket_text.one_line(text, most=MAX_ERROR) or "-"
