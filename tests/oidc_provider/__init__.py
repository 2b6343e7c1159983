"""A real OpenID Connect provider in a process of its own: Django OAuth Toolkit with RSA keys and groups in its tokens.

It shares no code with the portal's side of the protocol.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests import servers

CLIENT, SECRET = "kcover", "the secret of the portal"
PASSWORD = "a password at the provider"
ROOT = Path(__file__).resolve().parents[2]


class Provider(servers.Server):
    """The provider on a free port, with one client, whose address is ``portal``."""

    name = "oidc"

    def __init__(self, portal: str) -> None:
        super().__init__()
        self.portal = portal
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / "key.pem").write_bytes(pem)

    @property
    def url(self) -> str:
        """The issuer."""
        return f"http://localhost:{self.port}/o"  # another site than the portal at 127.0.0.1

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KCOVER_", "DJANGO_"))}
        own = {"DJANGO_SETTINGS_MODULE": "tests.oidc_provider.settings", "OIDC_FOLDER": str(self.folder)}
        return {**kept, **own, "OIDC_ISSUER": self.url, "PYTHONPATH": str(ROOT)}

    def command(self) -> list[str]:
        serve = [sys.executable, "-m", "django", "runserver", "--noreload", "--nothreading", f"127.0.0.1:{self.port}"]
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), *serve]

    def start(self) -> Self:
        if not (self.folder / "provider.sqlite3").exists():
            self._django("migrate", "--verbosity=0")
            client = ["--client-id", CLIENT, "--client-secret", SECRET, "--algorithm", "RS256", "--skip-authorization"]
            client += ["--redirect-uris", f"{self.portal}/sign-in/oidc/callback/"]
            client += ["--post-logout-redirect-uris", f"{self.portal}/sign-in/"]
            self._django("createapplication", "confidential", "authorization-code", *client)
        return super().start()

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/.well-known/openid-configuration", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def put_person(self, name: str, groups: Sequence[str]) -> None:
        """Creates the person, or replaces their groups."""
        self._people(name, "PUT", {"groups": list(groups)})

    def delete_person(self, name: str) -> None:
        self._people(name, "DELETE", {})

    def _people(self, name: str, method: str, body: dict[str, Any]) -> None:
        url = f"http://127.0.0.1:{self.port}/people/{name}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method=method)
        with urllib.request.urlopen(request, timeout=60):
            pass

    def _django(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "django", *arguments]
        subprocess.run(command, env=self.environment, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
