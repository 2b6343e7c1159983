"""What pyproject.toml cannot say: folders at the root of the checkout that lie inside the package once it is installed.

The settings look for them in both places (``kcover_portal.settings.BASE_DIR``).
"""

from setuptools import find_namespace_packages, setup

BESIDE = ("templates", "static", "locale", "deploy")
CACHES = ["__pycache__", "*.__pycache__"]

packages = find_namespace_packages(include=["kcover*", "agents*", "kcover_portal*", "simulator*"], exclude=CACHES)
for name in BESIDE:
    packages += [f"kcover_portal.{name}"]
    packages += [f"kcover_portal.{name}.{folder}" for folder in find_namespace_packages(name, exclude=CACHES)]

setup(packages=packages, package_dir={f"kcover_portal.{name}": name for name in BESIDE})
