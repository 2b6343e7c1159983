"""The portal's image, started as the manifests start it: read-only, as an unprivileged user, on PostgreSQL and Redis.

    deploy/portal/build.sh FOLDER
    IMAGE_FOLDER=FOLDER make test ARGS=tests/story/test_image.py

It needs root, umoci and bubblewrap. Nothing of the checkout is used but the manifests.
"""

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from kcover_portal.config import env
from tests import servers
from tests.deploy.manifests import PODS, SETTINGS, all_containers, only

pytestmark = [
    pytest.mark.skipif("IMAGE_FOLDER" not in os.environ, reason="IMAGE_FOLDER: what deploy/portal/build.sh wrote"),
    pytest.mark.timeout(600),
]
HOST = SETTINGS["KCOVER_ALLOWED_HOSTS"].split(",")[0]
START_SECONDS = 90.0
SECRET_KEY = "only-for-tests-8bdfc9d2a4e64fd6a1f8"
SIGNING_KEY = """
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
key = Ed25519PrivateKey.generate()
print(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode())
"""


class Image:
    """The unpacked image; its processes run with what a pod's have."""

    def __init__(self, folder: Path, *, secrets: Path) -> None:
        layout = Path(os.environ["IMAGE_FOLDER"]) / "oci"
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:kcover-portal", folder], check=True)
        self.root, self.secrets = folder / "rootfs", secrets
        self.config = json.loads((folder / "config.json").read_text())["process"]
        (self.root / "etc" / "kcover").mkdir()  # as a container runtime makes the places of mounts

    def command(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command that runs ``words`` in the image: the user, the mounts and the rights of a pod."""
        context = PODS["worker"]["securityContext"]
        user, group = context["runAsUser"], context["runAsGroup"]
        variables = dict(one.split("=", 1) for one in self.config["env"]) | environment
        return [
            *("bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--clearenv"),
            *("--ro-bind", str(self.root), "/", "--ro-bind", str(self.secrets), "/etc/kcover"),
            *(
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "--size",
                str(64 << 20),
                "--tmpfs",
                "/tmp",
                "--chmod",
                "1777",
                "/tmp",
            ),
            *(word for name, value in variables.items() for word in ("--setenv", name, value)),
            *("--chdir", self.config["cwd"], "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", *words),
        ]

    def output(self, words: Sequence[str], environment: Mapping[str, str]) -> str:
        """What ``words`` print."""
        done = subprocess.run(self.command(words, environment), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def read(port: int, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """The answer as the Ingress's pod gets it; status 0 if nobody answers."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": HOST, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()
    except OSError:
        return 0, {}, b""


def until(port: int, path: str) -> None:
    end = time.monotonic() + START_SECONDS
    while (status := read(port, path)[0]) != 200:
        assert time.monotonic() < end, f"{path}: {status}"
        time.sleep(0.5)


def test_the_image_runs_read_only_as_the_manifests_start_it(tmp_path: Path) -> None:
    secrets, logs = tmp_path / "secrets", tmp_path / "logs"
    secrets.mkdir()
    logs.mkdir()
    image = Image(tmp_path / "bundle", secrets=secrets)
    group = PODS["worker"]["securityContext"]["fsGroup"]
    assert (image.config["user"]["uid"], image.config["user"]["gid"]) == (group, group)

    with servers.Postgres(durable=True) as database, servers.redis() as redis, contextlib.ExitStack() as ends:
        alone = {"KCOVER_DATABASE_URL": database.url, "KCOVER_SECRET_KEY": SECRET_KEY}
        for name, text in {
            "database_url": database.url,
            "redis_url": redis,
            "secret_key": SECRET_KEY,
            "encryption_key": image.output(["python", "manage.py", "secrets", "key"], alone),
            "signing_key.pem": image.output(["python", "-c", SIGNING_KEY], {}),
        }.items():
            (secrets / name).write_text(text)
            (secrets / name).chmod(0o440)
            os.chown(secrets / name, 0, group)
        given = SETTINGS | {"KCOVER_TRUSTED_PROXIES": "127.0.0.1/32"}
        assert set(given) <= {one.name for one in env.VARIABLES} | {f"{one.name}_FILE" for one in env.VARIABLES}

        ports = {
            inside: str(ends.enter_context(servers.reserved_port()).getsockname()[1]) for inside in ("8080", "8000")
        }
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, pod in PODS.items():
            for container in all_containers(pod):
                words = [
                    re.sub(r"^(0\.0\.0\.0:)?(8080|8000)$", lambda at: (at[1] or "") + ports[at[2]], word)
                    for word in container["command"]
                ]
                variables = given | {one["name"]: one["value"] for one in container.get("env") or ()}
                log = ends.enter_context((logs / f"{name}-{container['name']}").open("wb"))
                if container["name"] == "migrate":
                    subprocess.run(image.command(words, variables), stdout=log, stderr=log, check=True)
                else:
                    running[name] = subprocess.Popen(image.command(words, variables), stdout=log, stderr=log)
                    ends.callback(running[name].wait, 30)
                    ends.callback(running[name].terminate)
        web, live = int(ports["8080"]), int(ports["8000"])
        secure = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
        until(web, "/healthz")
        until(live, "/healthz")
        end = time.monotonic() + START_SECONDS  # the sweep of beat and worker, and the watch, tell the database
        while (answer := read(web, "/readyz", **secure))[0] != 200:
            assert time.monotonic() < end, (answer, *(path.read_text()[-2000:] for path in logs.iterdir()))
            time.sleep(0.5)

        status, _, page = read(web, "/sign-in/", **secure, **{"Accept-Language": "zh-hans"})
        assert (status, "登录" in page.decode()) == (200, True)
        styles = re.search(r'href="(/static/console/console\.[0-9a-f]+\.css)"', page.decode())
        assert styles
        status, headers, _ = read(web, styles[1], **secure, **{"Accept-Encoding": "gzip"})
        assert (status, headers.get("Content-Encoding")) == (200, "gzip")

        for name, process in running.items():
            assert process.poll() is None, (logs / f"{name}-{name}").read_text()
            inner = psutil.Process(process.pid).children(recursive=True)[-1]
            facts = dict(line.split(":\t") for line in Path(f"/proc/{inner.pid}/status").read_text().splitlines())
            assert set(facts["Uid"].split()) == {str(group)}
            assert int(facts["CapEff"], 16) == 0
            assert int(facts["NoNewPrivs"]) == 1
            mounts = [line.split() for line in Path(f"/proc/{inner.pid}/mounts").read_text().splitlines()]
            root = only(options for _, place, _, options, *_ in mounts if place == "/")
            assert "ro" in root.split(",")
    for log in logs.iterdir():
        assert "Traceback" not in log.read_text(), log.read_text()
