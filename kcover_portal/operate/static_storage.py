"""Collected static files: their names carry a hash of the content, so browsers keep them for ever; with gzip copies."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedFiles(CompressedManifestStaticFilesStorage):
    """The storage in ``STATIC_ROOT``."""

    keep_only_hashed_files = False  # modules import each other by their own names
