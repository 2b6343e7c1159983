"""The address and the credentials in a kubeconfig that somebody pasted, without the official loader.

The loader writes certificates and keys to files that stay until the process ends. Here they are files only while TLS is
set up.
"""

import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import yaml

from kcover import reasons
from kcover_portal.kube import bounds, errors, http


def way_in(kubeconfig: str, *, resolve: bounds.Resolve) -> http.WayIn:
    """Returns the way in of a kubeconfig with one context and embedded credentials. Raises RefusedByServer."""
    try:
        document = yaml.load(kubeconfig, Loader=yaml.CSafeLoader)  # nosec B506
        return of(document["clusters"][0]["cluster"], document["users"][0]["user"], resolve=resolve)
    except (yaml.YAMLError, ssl.SSLError, ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise errors.RefusedByServer(reasons.of("kubeconfig_invalid", error=str(error))) from error


def of(
    cluster: dict[str, Any], user: dict[str, Any], *, resolve: bounds.Resolve | None, proxy: str | None = None
) -> http.WayIn:
    """Returns the way in of a cluster and a user of a kubeconfig. Raises SSLError, ValueError, KeyError, OSError."""
    host, token = str(cluster["server"]), user.get("token")
    tls = _tls(cluster, user) if host.startswith("https://") else None
    authorization = f"Bearer {token}" if isinstance(token, str) and token else None
    return http.WayIn(
        host=host.rstrip("/"),
        authorization=lambda: authorization,
        tls=tls,
        server_name=cluster.get("tls-server-name"),
        proxy=proxy,
        resolve=resolve,
    )


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(cadata=_pem(authority) if authority else None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as live: CAs of old clusters have no key identifiers
    if cluster.get("insecure-skip-tls-verify") is True:  # the text "false" would be true
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if user.get("client-certificate-data"):
        with tempfile.TemporaryDirectory() as folder:  # only its owner can read it
            certificate, key = Path(folder, "certificate"), Path(folder, "key")
            certificate.write_text(_pem(user["client-certificate-data"]))
            key.write_text(_pem(user["client-key-data"]))
            context.load_cert_chain(certificate, key, password=lambda: "")  # otherwise OpenSSL asks on the terminal
    return context


def _pem(data: str) -> str:
    return base64.b64decode(data, validate=True).decode("ascii")
