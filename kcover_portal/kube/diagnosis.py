"""Why an API server cannot be used, without any text of its response.

A person may enter the address of any server. What it answers must not come back to that person.
"""

import ssl

import urllib3.exceptions

from kcover import reasons
from kcover_portal.kube import errors, http

MAX_ERROR = 200  # characters of an error's text
REFUSED = {401: "cluster_credentials_refused", 403: "cluster_call_forbidden"}


def of(error: errors.KubeError) -> reasons.Reason:
    """Returns why the call failed."""
    cause = error.__cause__
    if isinstance(cause, http.Rejected):
        refused = REFUSED.get(cause.code)
        return reasons.of(refused) if refused else reasons.of("cluster_status", status=str(cause.code))
    if isinstance(cause, http.UNDECODABLE):
        return reasons.of("cluster_not_kubernetes")
    if isinstance(cause, urllib3.exceptions.NewConnectionError):  # a ConnectTimeoutError, too
        return reasons.of("cluster_not_connected", error=str(cause).rpartition(": ")[2][:MAX_ERROR])
    if isinstance(cause, urllib3.exceptions.ConnectTimeoutError | urllib3.exceptions.ReadTimeoutError | TimeoutError):
        return reasons.of("cluster_timeout")
    if isinstance(cause, urllib3.exceptions.SSLError | ssl.SSLError):
        return reasons.of("cluster_tls_failed", error=str(cause)[:MAX_ERROR])
    if isinstance(error.why, reasons.Reason) and cause is None:
        return error.why
    return reasons.of("cluster_connection_closed")
