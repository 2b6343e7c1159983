"""Tokens, answers and providers that must not sign anybody in: each has a code of its own."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import translation
from joserfc import jwk

from kcover import audit, reasons
from kcover_portal.accounts import tasks
from kcover_portal.accounts.models import Session, SpentChallenge, User
from kcover_portal.accounts.services.oidc import problems
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import localization
from tests.portal.accounts.browsers import Clock
from tests.portal.accounts.oidc import hostile
from tests.portal.accounts.oidc.conftest import SignOn, code_of

pytestmark = pytest.mark.django_db


def refused(person: SignOn, response: Any, code: str, status: int) -> None:
    assert (code_of(response), response.status_code) == (code, status)
    assert f'data-code="{code}"' in response.content.decode()
    assert person.opens() == 302, "nobody is signed in"
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://other.example"}, "oidc_token_issuer"),
        ({"aud": "another-client"}, "oidc_token_audience"),
        ({"aud": ["another-client"]}, "oidc_token_audience"),
        ({"aud": [hostile.CLIENT, "another-client"]}, "oidc_token_audience"),
        ({"aud": [hostile.CLIENT, "another-client"], "azp": "another-client"}, "oidc_token_audience"),
        ({"azp": "another-client"}, "oidc_token_audience"),
        ({"nonce": "replayed"}, "oidc_token_nonce"),
        ({"nonce": None}, "oidc_token_incomplete"),
        ({"sub": None}, "oidc_token_incomplete"),
        ({"sub": ""}, "oidc_token_incomplete"),
        ({"sub": 7}, "oidc_token_incomplete"),
        ({"sub": "x" * 256}, "oidc_token_incomplete"),
        ({"sub": "x\0"}, "oidc_token_incomplete"),
        ({"exp": None}, "oidc_token_incomplete"),
        ({"exp": "never"}, "oidc_token_incomplete"),
        ({"iat": None}, "oidc_token_incomplete"),
        ({"at_hash": "AAAA"}, "oidc_token_access"),
        ({"at_hash": ["AAAA"]}, "oidc_token_access"),
    ],
)
def test_a_token_with_wrong_claims(
    claims: dict[str, Any], code: str, provider: hostile.Provider, person: SignOn
) -> None:
    provider.claims = claims
    refused(person, person.sign_in(), code, 400)


def test_a_time_before_all_floats_is_refused(person: SignOn, provider: hostile.Provider) -> None:
    provider.claims = {"iat": -(10**400)}
    refused(person, person.sign_in(), "oidc_answer_invalid", 502)


@pytest.mark.parametrize(
    ("expires", "issued", "code"),
    [
        (-61, -300, "oidc_token_expired"),
        (-59, -300, ""),
        (300, 59, ""),
        (300, 62, "oidc_token_early"),
    ],
)
def test_clocks_may_differ_by_a_minute(
    expires: int, issued: int, code: str, provider: hostile.Provider, person: SignOn
) -> None:
    now = int(provider.now.timestamp())
    provider.claims = {"exp": now + expires, "iat": now + issued}
    response = person.sign_in()
    if code:
        refused(person, response, code, 400)
    else:
        assert response.status_code == 302


@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (hostile.unsigned, "oidc_token_unsigned"),
        (lambda claims: hostile.unsigned(claims) + "c2ln", "oidc_token_unsigned"),
    ],
)
def test_an_unsigned_token(
    forge: Callable[[dict[str, Any]], str], code: str, provider: hostile.Provider, person: SignOn
) -> None:
    answer = person.begin()
    claims = {"iss": provider.issuer, "sub": "person-1", "aud": hostile.CLIENT, "nonce": provider.nonce}
    provider.token = {"id_token": forge({**claims, "iat": 1, "exp": 2**40})}
    refused(person, person.finish(answer), code, 400)


def test_a_token_signed_with_the_public_key_as_a_secret(provider: hostile.Provider, person: SignOn) -> None:
    answer = person.begin()
    claims = {"iss": provider.issuer, "sub": "person-1", "aud": hostile.CLIENT, "nonce": provider.nonce}
    provider.token = {"id_token": hostile.signed_with_public_key(provider, {**claims, "iat": 1, "exp": 2**40})}
    refused(person, person.finish(answer), "oidc_token_unsigned", 400)


def test_a_token_of_another_key_under_a_known_name(provider: hostile.Provider, person: SignOn) -> None:
    provider.key = jwk.RSAKey.generate_key(2048, {"kid": "one"})
    refused(person, person.sign_in(), "oidc_token_signature", 400)


def test_a_token_of_an_unknown_key_asks_for_the_keys_once_a_minute(provider: hostile.Provider, person: SignOn) -> None:
    assert person.sign_in().status_code == 302
    User.objects.all().delete()
    provider.published = []
    provider.key = jwk.RSAKey.generate_key(2048, {"kid": "two"})
    for _ in range(3):
        refused(person, person.sign_in(), "oidc_token_signature", 400)
    assert len([path for path, *_ in provider.asked if path.endswith("/jwks")]) == 1


@pytest.mark.parametrize("token", [None, "", 7, "x", "a.b.c", "é.b.c", "x" * 200_000, {"a": 1}])
def test_something_else_than_a_token(token: Any, provider: hostile.Provider, person: SignOn) -> None:
    provider.token = {"id_token": token}
    refused(person, person.sign_in(), "oidc_answer_invalid", 502)


# --- the way back


def test_an_answer_without_a_sign_in_of_this_browser(person: SignOn) -> None:
    answer = person.begin()
    stranger = SignOn(person.provider)
    refused(stranger, stranger.finish(answer), "oidc_state_missing", 400)


def test_the_answer_to_an_earlier_sign_in(person: SignOn) -> None:
    earlier = person.begin()
    person.begin()
    refused(person, person.finish(earlier), "oidc_state_wrong", 400)


@pytest.mark.parametrize("state", ["", "é", "x" * 10_000])
def test_a_forged_state(state: str, person: SignOn) -> None:
    answer = {**person.begin(), "state": state}
    refused(person, person.finish(answer), "oidc_state_wrong", 400)


def test_a_state_is_accepted_once(person: SignOn) -> None:
    answer = person.begin()
    cookie = person.client.cookies["kcover_oidc"].value
    assert person.finish(answer).status_code == 302
    thief = SignOn(person.provider)
    thief.client.cookies["kcover_oidc"] = cookie
    response = thief.finish(answer)
    assert (code_of(response), response.status_code) == ("oidc_state_used", 400)
    assert thief.opens() == 302


def test_a_sign_in_must_be_completed_within_ten_minutes(clock: Clock, person: SignOn) -> None:
    answer = person.begin()
    clock.advance(minutes=10, seconds=1)
    refused(person, person.finish(answer), "oidc_state_missing", 400)


def test_spent_states_are_deleted_when_their_cookie_has_expired(clock: Clock, person: SignOn) -> None:
    person.sign_in()
    tasks.prune()
    assert SpentChallenge.objects.count() == 1
    clock.advance(minutes=11)
    tasks.prune()
    assert SpentChallenge.objects.count() == 0


def test_a_cookie_of_another_portal(person: SignOn, settings: Any) -> None:
    answer = person.begin()
    settings.SECRET_KEY = "another-key-another-key-another-key-another-key"
    refused(person, person.finish(answer), "oidc_state_missing", 400)


def test_the_answer_of_another_provider(person: SignOn) -> None:
    refused(person, person.finish({**person.begin(), "iss": "https://evil.example"}), "oidc_issuer_mixed_up", 400)


def test_a_provider_that_names_itself_always_does(provider: hostile.Provider, person: SignOn) -> None:
    provider.document = {"authorization_response_iss_parameter_supported": True}
    answer = person.begin()
    del answer["iss"]
    refused(person, person.finish(answer), "oidc_issuer_mixed_up", 400)


def test_a_refusal_of_the_provider_is_shown(person: SignOn) -> None:
    answer = {**person.begin(), "error": "access_denied", "error_description": "call +1 900 EVIL"}
    response = person.finish(answer)
    refused(person, response, "oidc_refused", 403)
    assert "EVIL" not in response.content.decode()
    assert "access_denied" in response.content.decode()


def test_an_error_that_is_no_error_code_is_not_shown(person: SignOn) -> None:
    response = person.finish({**person.begin(), "error": "call +1 900 EVIL"})
    refused(person, response, "oidc_refused", 403)
    assert "EVIL" not in response.content.decode()


@pytest.mark.parametrize("code", ["", "x" * 9000])
def test_an_answer_without_a_code(code: str, person: SignOn) -> None:
    refused(person, person.finish({**person.begin(), "code": code}), "oidc_code_missing", 400)


def test_the_verifier_of_another_sign_in(provider: hostile.Provider, person: SignOn) -> None:
    answer = person.begin()
    provider.challenge = "another"
    refused(person, person.finish(answer), "oidc_code_refused", 400)


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "http:evil.example", ""],
)
def test_a_target_elsewhere_is_not_followed(target: str, person: SignOn) -> None:
    assert person.sign_in(target).headers["Location"] == "/"


# --- the provider's own faults


def test_a_provider_that_is_down(person: SignOn, settings: Any) -> None:
    settings.KCOVER_OIDC = replace(person.provider.client, issuer="http://127.0.0.1:9")
    response = person.client.get("/sign-in/oidc/")
    refused(person, response, "oidc_unreachable", 503)


def test_a_provider_that_goes_down_in_the_middle(provider: hostile.Provider, person: SignOn) -> None:
    answer = person.begin()
    provider.status = {"token": 503}
    refused(person, person.finish(answer), "oidc_unreachable", 503)


@pytest.mark.parametrize("issuer", ["http://169.254.169.254/x", "http://100.100.100.200"])
def test_a_metadata_service_is_never_called(issuer: str, person: SignOn, settings: Any) -> None:
    settings.KCOVER_OIDC = replace(person.provider.client, issuer=issuer)
    response = person.client.get("/sign-in/oidc/")
    refused(person, response, "oidc_unreachable", 503)
    assert response.context["refusal"].startswith(localization.say(reasons.of("oidc_unreachable", problem="")).strip())


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"issuer": "https://other.example"}, "oidc_issuer_wrong"),
        ({"issuer": None}, "oidc_issuer_wrong"),
        ({"token_endpoint": None}, "oidc_answer_invalid"),
        ({"token_endpoint": 7}, "oidc_answer_invalid"),
        ({"token_endpoint": "http://plain.example/token"}, "oidc_endpoint_insecure"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "oidc_endpoint_insecure"),
        ({"end_session_endpoint": "http://[::1"}, "oidc_endpoint_insecure"),
        ({"jwks_uri": "https://user:password@host.example/"}, "oidc_endpoint_insecure"),
        ({"issuer": "\ud800"}, "oidc_issuer_wrong"),
        ({"end_session_endpoint": "https://host.example/\ud800"}, "oidc_endpoint_insecure"),
        ({"authorization_endpoint": "https://host.example/\0"}, "oidc_endpoint_insecure"),
        ({"token_endpoint_auth_methods_supported": 5}, "oidc_answer_invalid"),
    ],
    ids=ascii,
)
def test_a_discovery_document_that_is_wrong(
    document: dict[str, Any], code: str, provider: hostile.Provider, person: SignOn
) -> None:
    provider.document = document
    refused(person, person.client.get("/sign-in/oidc/"), code, 502)


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"[" * 100_000, b"\xff", b" " * 300_000])
@pytest.mark.parametrize("part", ["openid-configuration", "token", "jwks"])
def test_an_answer_that_is_no_document(part: str, raw: bytes, provider: hostile.Provider, person: SignOn) -> None:
    provider.raw = {part: raw}
    response = person.client.get("/sign-in/oidc/")
    if part != "openid-configuration":
        response = person.finish(provider.authorize(response.headers["Location"]))
    refused(person, response, "oidc_answer_invalid", 502)


def test_a_redirect_of_the_provider_is_not_followed(provider: hostile.Provider, person: SignOn) -> None:
    provider.status = {"openid-configuration": 302}
    refused(person, person.client.get("/sign-in/oidc/"), "oidc_answer_invalid", 502)
    assert [path for path, *_ in provider.asked if path.endswith("/elsewhere")] == []


def test_keys_of_kinds_that_sign_nothing_are_left_out(provider: hostile.Provider, person: SignOn) -> None:
    odd = [{"kty": "oct", "k": "c2VjcmV0", "kid": "one"}, {"kty": "??"}, 7, {"kty": "RSA", "n": "!"}, {}]
    provider.published = [*odd, *provider.published]
    assert person.sign_in().status_code == 302


@pytest.mark.parametrize("claims", [{"groups": ["\0", "x" * 300]}, {"sid": "a\0b"}, {"sid": "x" * 300}], ids=repr)
def test_a_text_that_no_database_stores_is_left_out(
    claims: dict[str, Any], provider: hostile.Provider, person: SignOn
) -> None:
    provider.claims = claims
    assert person.sign_in().status_code == 302
    assert Session.objects.get(user__isnull=False).provider_session == ""


@pytest.mark.parametrize("named", [{"sub": "a\0"}, {"sub": None, "sid": "a\0"}, {"sub": 5}], ids=ascii)
def test_a_logout_token_with_an_unstorable_text_is_refused(
    named: dict[str, Any], provider: hostile.Provider, person: SignOn
) -> None:
    response = person.client.post("/sign-in/oidc/ended/", {"logout_token": provider.logout_token(**named)})
    assert response.status_code == 400


def test_a_slow_provider_occupies_few_threads(person: SignOn) -> None:
    with problems.place(), problems.place(), problems.place(), problems.place():
        response = person.client.get("/sign-in/oidc/")
    assert (code_of(response), response.status_code) == ("oidc_busy", 429)
    assert int(response.headers["Retry-After"]) > 0
    assert person.sign_in().status_code == 302


def test_without_settings_there_is_no_single_sign_on(person: SignOn, settings: Any) -> None:
    settings.KCOVER_OIDC = None
    for response in (person.client.get("/sign-in/oidc/"), person.client.get("/sign-in/oidc/callback/")):
        refused(person, response, "oidc_off", 404)
    assert person.client.post("/sign-in/oidc/ended/", {"logout_token": "x"}).status_code == 400
    assert "/sign-in/oidc/" not in person.client.get("/sign-in/").content.decode()


# --- on record, in two languages


def test_a_failure_is_on_record_with_its_address(provider: hostile.Provider, person: SignOn) -> None:
    provider.claims = {"nonce": "replayed"}
    for _ in range(3):
        person.sign_in()
    (entry,) = Entry.objects.filter(verb="user.single_sign_on_failed")
    assert audit.from_entry(entry) == audit.SingleSignOnFailed(user="", address="192.0.2.7", count=1)
    assert entry.actor == "nobody"


def test_each_refusal_has_a_chinese_sentence(provider: hostile.Provider, person: SignOn) -> None:
    provider.claims = {"nonce": "replayed"}
    english = person.sign_in().context["refusal"]
    person.client.cookies["django_language"] = "zh-hans"
    with translation.override("zh-hans"):
        chinese = person.sign_in().context["refusal"]
    assert chinese != english


def test_the_times_of_a_flow(clock: Clock, person: SignOn) -> None:
    answer = person.begin()
    clock.advance(minutes=9)
    person.provider.now = clock.now + timedelta(seconds=1)
    assert person.finish(answer).status_code == 302
