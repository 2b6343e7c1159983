"""Modules of the standard library that others import at their top, and that an idle agent hardly ever uses.

The agent runs on every node for months, so memory that it never uses counts. A deferred module is imported at the first
access to one of its attributes. ``docs/performance.md`` has the figures. The standard library's ``LazyLoader`` does not
help here: with it, the second ``import`` statement loads the module, and before Python 3.11.9 two threads may see it
half-loaded.
"""

import importlib
import sys
import threading
import types
from collections.abc import Iterable

DEFERRED_MODULES = (
    "argparse",  # agents.checks.gpu_bench, which runs as a program of its own
    "bz2",  # shutil, for archives
    "calendar",  # email, for time zones
    "hashlib",  # agents.commands, to name the file of a command; loads OpenSSL
    "inspect",  # dataclasses, for the docstring of a class that has none: give every data class one
    "ipaddress",  # urllib.parse, for IPv6 addresses
    "locale",  # subprocess, for text; the agent reads bytes
    "lzma",  # shutil, for archives
    "pprint",  # kcover.checks.autopilot, for the portal
    "ssl",  # http.client; needed for an https:// portal; loads OpenSSL
    "tempfile",  # ctypes.util, to find a library with the compiler's help
    "textwrap",  # traceback, for groups of exceptions
    "tokenize",  # linecache, to show the source in a traceback
)


def install(names: Iterable[str] = DEFERRED_MODULES) -> None:
    """Defer these modules in this process; those that are loaded already stay.

    Call it before the first import of a module that imports one of them.
    """
    for name in names:
        sys.modules.setdefault(name, _DeferredModule(name))


class _DeferredModule(types.ModuleType):
    """Stands for a module, and imports it when an attribute is needed."""

    def __getattr__(self, attribute: str) -> object:
        with _lock:  # a second thread must not remove the real module; the import itself has its own lock
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)


_lock = threading.Lock()
