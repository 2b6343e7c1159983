import pytest
from pytest_django.fixtures import SettingsWrapper


@pytest.fixture(autouse=True)
def _quick_passwords(settings: SettingsWrapper) -> None:
    """Argon2 is slow on purpose; these tests are about everything but that."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
