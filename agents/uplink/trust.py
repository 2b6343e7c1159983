"""The certificate authorities that the agent trusts."""

import os
import pathlib
import re
import ssl

HASHED_CERTIFICATE = re.compile(
    r"[0-9a-f]{8}\.[0-9]+"
)  # the name under which OpenSSL looks for a certificate in a folder


class TrustStore:
    """The certificate authorities to trust: those of ``ca_file``, else those of the system.

    The system's bundle costs 2.5 MiB for as long as the agent lives. ``hashed_folder`` is a folder with one file for
    each authority, in which OpenSSL finds just the one it needs. The bundle is then loaded only if that is not enough.
    """

    def __init__(self, ca_file: pathlib.Path | None = None, *, hashed_folder: pathlib.Path | None = None) -> None:
        """Raises OSError for an unreadable ``ca_file``."""
        self.context = ssl.create_default_context(cafile=ca_file, capath=hashed_folder)
        self._is_complete = hashed_folder is None

    def may_accept_after(self, error: Exception) -> bool:
        """Return whether the connection may succeed if it is tried again, because more authorities are trusted now.

        The bundle of the system is loaded once, after a certificate was not trusted.
        """
        if self._is_complete or not isinstance(error, ssl.SSLCertVerificationError):
            return False
        self._is_complete = True
        self.context.load_default_certs()
        return True


def hashed_certificates(paths: "ssl.DefaultVerifyPaths | None" = None) -> pathlib.Path | None:
    """The system's folder of certificates by hash. None if there is none, or if the environment names another place."""
    paths = paths or ssl.get_default_verify_paths()
    if not paths.capath or os.environ.keys() & {paths.openssl_cafile_env, paths.openssl_capath_env}:
        return None
    folder = pathlib.Path(paths.capath)
    return folder if any(HASHED_CERTIFICATE.fullmatch(entry.name) for entry in folder.iterdir()) else None
