"""A small Jira over HTTP. It checks what it is asked and answers against the schemas that Atlassian publishes."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema

SCHEMA = json.loads((Path(__file__).parent / "jira_schema.json").read_text(encoding="utf-8"))
ASKED = {"issue": "IssueUpdateDetails", "comment": "Comment", "transitions": "IssueUpdateDetails"}
ANSWERED = {"issue": "CreatedIssue", "comment": "Comment"}
ISSUE = re.compile(r"/rest/api/3/issue/([A-Z]+-\d+)(/comment|/transitions)?")
STATES = {"To Do": "new", "In Progress": "indeterminate", "Done": "done"}


def check(name: str, value: Any) -> None:
    """Raises ValidationError unless the value is what the schema of this name says."""
    jsonschema.validate(value, {**SCHEMA, "$ref": f"#/components/schemas/{name}"})


def check_document(value: Any) -> None:
    """Raises ValidationError unless the value is a document in the Atlassian Document Format."""
    jsonschema.validate(value, {**SCHEMA, "$ref": "#/definitions/doc_node"})


class JiraServer:
    """``issues`` by key; ``calls`` as (method, path); ``wrong``: what did not fit the schemas.

    ``failures``: statuses answered instead, one a call, 0 for none; ``lost`` calls are carried out and not answered,
    or, if ``late``, answered with 408.
    ``indexed`` False: the search finds nothing. ``offered``: the transitions, by name the state after them.
    """

    def __init__(self) -> None:
        self.issues: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.authorizations: set[str] = set()
        self.wrong: list[Exception] = []
        self.failures: list[int] = []
        self.lost: set[str] = set()
        self.late = False
        self.headers: dict[str, str] = {}
        self.indexed = True
        self.offered = {"Start": "In Progress", "Finish": "Done"}
        jira = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                parts = urlsplit(self.path)
                jira.calls.append((self.command, parts.path.removeprefix("/rest/api/3/")))
                jira.authorizations.add(self.headers["Authorization"])
                status = jira.failures.pop(0) if jira.failures else 0
                more = jira.headers if status else {}
                answer: Any = {"errorMessages": ["told by the test"], "errors": {}}
                if not status:
                    try:
                        status, answer = jira.do(self.command, parts.path, parse_qs(parts.query), body)
                    except jsonschema.ValidationError as error:
                        jira.wrong.append(error)
                        status = 400
                if parts.path.rsplit("/", 1)[-1] in jira.lost and self.command == "POST":
                    jira.lost.discard(parts.path.rsplit("/", 1)[-1])
                    if not jira.late:
                        self.close_connection = True
                        return
                    status = 408
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def do(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if path == "/rest/api/3/search/jql":
            return 200, self.search(body)
        if (method, path) == ("POST", "/rest/api/3/issue"):
            return 201, self.create(body)
        found = ISSUE.fullmatch(path)
        if found is None or found[1] not in self.issues:
            return 404, {
                "errorMessages": ["Issue does not exist or you do not have permission to see it."],
                "errors": {},
            }
        issue = self.issues[found[1]]
        if found[2] == "/comment":
            return self.comment(method, issue, body)
        if found[2] == "/transitions":
            return self.transition(method, issue, body)
        return 200, {"id": "1", "key": issue["key"], "fields": {"status": self.status(issue["state"])}}

    def search(self, body: Any) -> Any:
        check("SearchAndReconcileRequestBean", body)
        [label] = re.findall(r'^labels = "([a-z0-9-]+)" ORDER BY created ASC$', body["jql"])
        found = [key for key, issue in self.issues.items() if label in issue["fields"]["labels"] and self.indexed]
        answer = {"issues": [{"id": self.issues[key]["id"], "key": key} for key in found], "isLast": True}
        check("SearchAndReconcileResults", answer)
        return answer

    def create(self, body: Any) -> Any:
        check("IssueUpdateDetails", body)
        check_document(body["fields"]["description"])
        assert len(body["fields"]["summary"]) <= 255
        assert "\n" not in body["fields"]["summary"]
        key = f"{body['fields']['project']['key']}-{len(self.issues) + 1}"
        number = str(10_000 + len(self.issues))
        self.issues[key] = {"id": number, "key": key, "fields": body["fields"], "comments": [], "state": "To Do"}
        answer = {"id": number, "key": key, "self": f"{self.url}/rest/api/3/issue/{number}"}
        check("CreatedIssue", answer)
        return answer

    def comment(self, method: str, issue: dict[str, Any], body: Any) -> tuple[int, Any]:
        if method == "GET":
            page = {"comments": [{"id": "1", "body": one} for one in reversed(issue["comments"])], "total": 1}
            check("PageOfComments", page)
            return 200, page
        check("Comment", body)
        check_document(body["body"])
        issue["comments"].append(body["body"])
        return 201, {"id": "1", "body": body["body"]}

    def transition(self, method: str, issue: dict[str, Any], body: Any) -> tuple[int, Any]:
        if method == "GET":
            listed = [
                {"id": str(number), "name": name, "to": self.status(state)}
                for number, (name, state) in enumerate(self.offered.items())
            ]
            check("Transitions", {"transitions": listed})
            return 200, {"transitions": listed}
        check("IssueUpdateDetails", body)
        issue["state"] = list(self.offered.values())[int(body["transition"]["id"])]
        return 204, None

    def status(self, name: str) -> dict[str, Any]:
        return {"id": "1", "name": name, "statusCategory": {"id": 2, "key": STATES[name], "name": name}}
