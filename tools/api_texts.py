"""``python tools/api_texts.py``: prints the texts of the OpenAPI document as a module that ``makemessages`` can read.

They are docstrings of views and help texts of parameters, which ``xgettext`` does not read. Labels of filters are
marked where they stand: they differ from language to language, and are left out. ``make messages`` writes the module,
collects its texts and removes it.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")

import django  # noqa: E402 - the checkout is not installed

django.setup()

from django.utils import translation  # noqa: E402 - needs the settings
from drf_spectacular.generators import SchemaGenerator  # noqa: E402
from drf_spectacular.settings import patched_settings  # noqa: E402

from kcover_portal.api import schema_texts  # noqa: E402


def main() -> None:
    """Prints one marked text on each line."""
    with patched_settings({"POSTPROCESSING_HOOKS": []}):
        english, chinese = document("en"), document("zh-hans")
        unmarked = schema_texts.parameter_texts(english) & schema_texts.parameter_texts(chinese)
        unmarked |= schema_texts.field_texts(english) & schema_texts.field_texts(chinese)
    for text in sorted(schema_texts.texts(english) | unmarked):
        print(f"# xgettext:no-python-format\n_({text!r})")


def document(language: str) -> schema_texts.Document:
    """The OpenAPI document in a language."""
    with translation.override(language):
        return SchemaGenerator().get_schema(public=True)


main()
