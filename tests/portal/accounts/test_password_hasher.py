"""The cost of a password hash, and the limit of concurrent hashes."""

import threading
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth import hashers

from kcover_portal import settings as production
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import password_hasher
from tests import waiting
from tests.portal.accounts.browsers import PASSWORD, Browser, make_user, wait_of

OWASP = {"memory_cost": 19 * 1024, "time_cost": 2, "parallelism": 1}


@pytest.fixture(autouse=True)
def _slow_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = production.PASSWORD_HASHERS


def costs(encoded: str) -> dict[str, int]:
    decoded = hashers.identify_hasher(encoded).decode(encoded)
    return {name: decoded[name] for name in OWASP}


def test_a_hash_has_the_recommended_costs_of_owasp() -> None:
    assert costs(hashers.make_password(PASSWORD)) == OWASP


@pytest.mark.django_db
def test_a_hash_with_other_costs_stays_valid_and_is_replaced_at_the_sign_in(now: datetime) -> None:
    anna = make_user("anna", now)
    old = hashers.Argon2PasswordHasher().encode(PASSWORD, "some-salt-of-old")
    User.objects.filter(pk=anna.pk).update(password=old)
    assert costs(old) != OWASP
    assert Browser().sign_in("anna").status_code == 302
    assert costs(User.objects.get().password) == OWASP
    assert Browser().sign_in("anna").status_code == 302


class Gauge:
    """Stands in for Argon2: each hash lasts until ``go``, or a moment."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.most = self.current = 0
        self.lock = threading.Lock()

    def __call__(self, *_args: object, **_named: object) -> str:
        with self.lock:
            self.current += 1
            self.most = max(self.most, self.current)
        self.go.wait(60)
        with self.lock:
            self.current -= 1
        return "argon2$x"


def measured(monkeypatch: pytest.MonkeyPatch) -> Gauge:
    made = Gauge()
    for method in ("encode", "verify"):
        monkeypatch.setattr(hashers.Argon2PasswordHasher, method, made)
    return made


@pytest.fixture
def gauge(monkeypatch: pytest.MonkeyPatch) -> Gauge:
    return measured(monkeypatch)


def begin_hashing(gauge: Gauge) -> list[threading.Thread]:
    """Takes all places, until ``gauge.go``."""
    hasher = password_hasher.BoundedArgon2PasswordHasher()
    threads = [threading.Thread(target=hasher.encode, args=("p", "s")) for _ in range(password_hasher.MAX_RUNNING)]
    for thread in threads:
        thread.start()
    waiting.until(lambda: gauge.current == password_hasher.MAX_RUNNING, "all places to be taken")
    return threads


def test_two_passwords_are_hashed_at_a_time_two_wait_and_the_others_are_refused(gauge: Gauge) -> None:
    hasher, answers = password_hasher.BoundedArgon2PasswordHasher(), []

    def hash_one(number: int) -> None:
        try:
            answers.append(hasher.encode("p", "s") if number % 2 else hasher.verify("p", "s"))
        except password_hasher.TooManyHashes as refused:
            answers.append(refused.reason.code)

    threads = [threading.Thread(target=hash_one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    waiting.until(lambda: len(answers) == 12, "those beyond the places to be refused")
    gauge.go.set()
    for thread in threads:
        thread.join()
    assert gauge.most == 2
    assert sorted(answers) == ["argon2$x"] * 4 + ["hashing_busy"] * 12


def test_a_caller_that_waits_too_long_for_a_hash_is_refused(gauge: Gauge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_hasher, "MAX_WAIT_SECONDS", 0.05)
    hasher = password_hasher.BoundedArgon2PasswordHasher()
    threads = begin_hashing(gauge)
    with pytest.raises(password_hasher.TooManyHashes):
        hasher.encode("p", "s")
    gauge.go.set()
    for thread in threads:
        thread.join()
    assert hasher.encode("p", "s") == "argon2$x"  # every place was given back


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["anna", "nobody"])
def test_a_sign_in_without_a_place_to_hash_gets_429_and_counts_as_no_failure(
    name: str, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_user("anna", now)
    with monkeypatch.context() as patched:
        gauge = measured(patched)
        patched.setattr(password_hasher, "MAX_WAIT_SECONDS", 0.01)
        threads = begin_hashing(gauge)
        busy = [wait_of(Browser().sign_in(name)) for _ in range(7)]
        gauge.go.set()
        for thread in threads:
            thread.join()
    assert busy == [password_hasher.RETRY_AFTER_SECONDS] * 7
    assert Browser().sign_in("anna").status_code == 302
