"""The way into a cluster by embedded credentials of a kubeconfig or by the token of a pod, without the official loader.

The loader imports a package of 1,200 modules: 0.3 s of CPU time and 40 MB in each process. It remains for everything
else: plug-ins, files, several kubeconfigs.
"""

import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from kcover import reasons
from kcover_portal.kube import bounds, errors, http, pasted_kubeconfig

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0  # between reads of a pod's token, which a kubelet renews
CLUSTER_KEYS: Final[Mapping[str, type]] = {
    "server": str,
    "certificate-authority-data": str,
    "insecure-skip-tls-verify": bool,
    "tls-server-name": str,
    "proxy-url": str,
    "extensions": list,
}
USER_KEYS: Final[Mapping[str, type]] = {"token": str, "client-certificate-data": str, "client-key-data": str}


def of_kubeconfig(
    path_or_text: str | Path, context: str | None, *, resolve: bounds.Resolve | None
) -> http.WayIn | None:
    """Returns the way in of a context of a kubeconfig; None if the official loader has to read it, or to refuse it."""
    try:
        cluster, user = _parts(_document(path_or_text), context)
        if not (_is_plain(cluster, CLUSTER_KEYS) and _is_plain(user, USER_KEYS) and cluster["server"]):
            return None
        return pasted_kubeconfig.of(cluster, user, resolve=resolve, proxy=_proxy(cluster, resolve))
    except (yaml.YAMLError, ssl.SSLError, ValueError, LookupError, TypeError, OSError):
        return None


def of_pod(folder: Path = ACCOUNT, *, monotonic: Callable[[], float] = time.monotonic) -> http.WayIn:
    """Returns the way into the cluster that this process runs in. Raises RefusedByServer outside of a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    try:
        if not host or not port:
            raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is not a pod")
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # CAs of old clusters have no key identifiers
        authorization = _PodToken(folder / "token", monotonic=monotonic)
        authorization.read()
    except (ssl.SSLError, ValueError, OSError) as error:
        raise errors.RefusedByServer(reasons.of("kubeconfig_invalid", error=str(error))) from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return http.WayIn(host=server, authorization=authorization, tls=tls, proxy=proxy_of(server, None))


def proxy_named(path_or_text: str | Path, context: str | None, *, resolve: bounds.Resolve | None) -> str | None:
    """Returns the context's ``proxy-url``, which the official loader leaves out; None if there is none to read."""
    try:
        cluster, _ = _parts(_document(path_or_text), context)
        named = cluster.get("proxy-url")
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OSError):
        return None
    return _proxy(cluster, resolve) if named else None


def _proxy(cluster: Mapping[str, Any], resolve: bounds.Resolve | None) -> str | None:
    """The proxy of a cluster: its own, else that of the environment. Raises RefusedByServer."""
    if not cluster.get("proxy-url"):
        return proxy_of(cluster["server"], resolve)
    if resolve is not None:  # it would resolve the names, and no address could be checked
        raise errors.RefusedByServer(reasons.of("kubeconfig_key_refused", section="cluster", key="proxy-url"))
    return str(cluster["proxy-url"])


def proxy_of(server: str, resolve: bounds.Resolve | None) -> str | None:
    """Returns the proxy to the server. It resolves names by itself, so a checked address is called without one.

    The official client also uses HTTPS_PROXY for plain HTTP, and its support of no_proxy is incomplete.
    """
    url = urlsplit(server)
    return None if resolve or proxy_bypass(url.netloc) else getproxies().get(url.scheme)


class _PodToken:
    """The header with a pod's token as it is now."""

    def __init__(self, file: Path, *, monotonic: Callable[[], float]) -> None:
        self._file, self._monotonic = file, monotonic
        self._header, self._until = "", 0.0

    def __call__(self) -> str:
        """Raises Unavailable if the file cannot be read."""
        if self._monotonic() >= self._until:
            try:
                self.read()
            except (OSError, ValueError) as error:
                raise errors.Unavailable(reasons.of("kubeconfig_credentials", error=str(error))) from error
        return self._header

    def read(self) -> None:
        """Raises OSError or ValueError."""
        token = self._file.read_text(encoding="ascii").strip()
        if not token:
            raise ValueError(f"{self._file} is empty")
        self._header, self._until = f"Bearer {token}", self._monotonic() + TOKEN_SECONDS


def _document(path_or_text: str | Path) -> Any:
    text = str(path_or_text)
    if isinstance(path_or_text, Path) or "\n" not in text:
        if os.pathsep in text:
            raise ValueError("several files")
        text = Path(text).expanduser().read_text(encoding="utf-8")
    return yaml.load(text, Loader=yaml.CSafeLoader)  # nosec B506


def _parts(document: Any, context: str | None) -> tuple[Any, Any]:
    """Returns the cluster and the user of the context. Raises LookupError, TypeError."""
    chosen = _named(document, "contexts", context or document["current-context"])["context"]
    cluster = _named(document, "clusters", chosen["cluster"])["cluster"]
    return cluster, _named(document, "users", chosen["user"])["user"]


def _named(document: Any, section: str, name: str) -> Any:
    found = [one for one in document[section] if one["name"] == name]
    if len(found) != 1:
        raise LookupError(name)
    return found[0]


def _is_plain(part: Any, keys: Mapping[str, type]) -> bool:
    """Returns whether the part has no other keys, and only values that are not empty and of their types."""
    return isinstance(part, dict) and all(
        type(value) is keys.get(key) and (value or value is False) for key, value in part.items()
    )
