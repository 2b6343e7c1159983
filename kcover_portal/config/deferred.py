"""Large libraries that a process imports at their first use.

Management commands and Celery's beat need neither Kubernetes' client nor WebAuthn. The two are a third of their start.
"""

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any


class Module(types.ModuleType):
    """Stands for the module with this name, and imports it at the first access to an attribute."""

    def __getattr__(self, attribute: str) -> object:
        return getattr(importlib.import_module(self.__name__), attribute)


@contextlib.contextmanager
def hidden(name: str) -> Iterator[None]:
    """Lets libraries that are imported in the block do without an optional module, as if it were not installed."""
    modules: dict[str, Any] = sys.modules
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
