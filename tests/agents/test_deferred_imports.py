import importlib
import sys
import threading

import pytest

from agents import deferred_imports

NAME = "deferred_in_a_test"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that counts its imports in ``sys``, and takes a moment to load."""
    source = f"import sys, time\nsys.{NAME} += 1\nearly = 1\ntime.sleep(0.2)\nlate = 2\n"
    (tmp_path / f"{NAME}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, NAME, 0, raising=False)
    importlib.invalidate_caches()
    yield NAME
    sys.modules.pop(NAME, None)


def imports():
    return getattr(sys, NAME)


def test_a_deferred_module_is_imported_at_its_first_use(module):
    deferred_imports.install((module,))
    first = importlib.import_module(module)
    assert importlib.import_module(module) is first  # a second import statement does not load it
    assert imports() == 0
    assert first.late == 2
    assert first.early == 1
    assert imports() == 1
    assert importlib.import_module(module).late == 2
    assert imports() == 1


def test_two_threads_use_it_first_at_the_same_time(module):
    deferred_imports.install((module,))
    deferred, found = importlib.import_module(module), []
    threads = [threading.Thread(target=lambda: found.append((deferred.early, deferred.late))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(1, 2)] * 8
    assert imports() == 1


def test_a_loaded_module_stays(module):
    loaded = importlib.import_module(module)
    deferred_imports.install((module,))
    assert importlib.import_module(module) is loaded


def test_an_unknown_attribute_and_an_absent_module(module):
    deferred_imports.install((module,))
    with pytest.raises(AttributeError):
        _ = importlib.import_module(module).nothing
    deferred_imports.install(("deferred_but_absent",))
    try:
        with pytest.raises(ModuleNotFoundError):
            _ = importlib.import_module("deferred_but_absent").anything
    finally:
        sys.modules.pop("deferred_but_absent", None)
