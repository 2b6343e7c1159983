"""Large libraries that a process imports at their first use.

Management commands and Celery's beat need neither Kubernetes' client nor WebAuthn. The two are a third of their start.
"""

import importlib
import types


class Module(types.ModuleType):
    """Stands for the module with this name, and imports it at the first access to an attribute."""

    def __getattr__(self, attribute: str) -> object:
        return getattr(importlib.import_module(self.__name__), attribute)
