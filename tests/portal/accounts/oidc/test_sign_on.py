"""People who sign in through the provider: their accounts, the roles of their groups, their sessions."""

from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kcover import audit
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import Identity, RoleBinding, Session, User
from kcover_portal.accounts.services import oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from tests.portal.accounts.browsers import PASSWORD, Browser, Clock, make_user
from tests.portal.accounts.oidc import hostile
from tests.portal.accounts.oidc.conftest import SignOn, code_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def east(clock: Clock) -> Cluster:
    return Cluster.objects.create(name="east", created_at=clock.now)


@pytest.fixture
def west(clock: Clock) -> Cluster:
    return Cluster.objects.create(name="west", created_at=clock.now)


def acts(prefix: str) -> list[Any]:
    """The acts whose verbs start like this, oldest first."""
    return [audit.from_entry(entry) for entry in Entry.objects.filter(verb__startswith=prefix).order_by("pk")]


def roles(user: User) -> set[tuple[str, str | None, str]]:
    """(role, cluster, source) of each binding."""
    rows = RoleBinding.objects.filter(user=user).values_list("role", "cluster__name", "source")
    return set(rows)


def map_group(group: str, role: str, now: Any, cluster: Cluster | None = None) -> None:
    oidc.map_group(group, role, cluster=cluster, actor="user:root", now=now)


def test_the_first_sign_in_creates_the_account(provider: hostile.Provider, person: SignOn) -> None:
    response = person.sign_in("/nodes/?q=x")
    assert (response.status_code, response.headers["Location"]) == (302, "/nodes/?q=x")
    user = User.objects.get()
    assert (user.username, user.has_usable_password(), roles(user)) == ("anna", False, set())
    assert acts("identity.") == [
        audit.IdentityCreated(user="anna", issuer=provider.issuer, subject_id="person-1"),
    ]
    assert acts("user.signed_in") == [
        audit.SignedIn(user="anna", address="192.0.2.7", issuer=provider.issuer),
    ]
    session = Session.objects.get(user=user)
    assert (session.address, session.browser, session.identity) == ("192.0.2.7", "test", Identity.objects.get())
    assert person.opens() == 403, "no role yet"
    assert ledger.verify("").intact


def test_an_account_without_role_can_sign_out_and_one_without_password_has_no_password_form(
    clock: Clock, person: SignOn
) -> None:
    person.sign_in()
    page = person.client.get("/")
    assert (page.status_code, page.content.count(b'action="/sign-out/"')) == (403, 2)  # in the menu, and on the page
    services.bind(User.objects.get(), "viewer", actor="test", now=clock.now)
    assert b"/account/password/" not in person.client.get("/account/").content
    assert person.client.get("/account/password/").headers["Location"] == "/account/"


def test_the_next_sign_in_finds_the_account_by_issuer_and_subject(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    person.sign_in()
    provider.claims = {"preferred_username": "anna.smith"}
    clock.advance(minutes=1)
    SignOn(provider).sign_in()
    user = User.objects.get()
    assert user.username == "anna"
    assert [(row.user, row.seen_at, row.name) for row in Identity.objects.all()] == [(user, clock.now, "anna.smith")]
    assert len(acts("identity.")) == 1


def test_the_secret_and_the_verifier_reach_the_token_endpoint(provider: hostile.Provider, person: SignOn) -> None:
    person.sign_in()
    ((_path, form, headers),) = [one for one in provider.asked if one[0].endswith("/token")]
    assert headers["Authorization"] == "Basic a2NvdmVyOmErc2VjcmV0K3dpdGgrc3BhY2VzKyUyNitjb2xvbnMlM0E="
    assert (form["grant_type"], form["code"], form["client_id"]) == ("authorization_code", "the-code", "kcover")
    assert form["redirect_uri"] == "http://testserver/sign-in/oidc/callback/"
    assert len(form["code_verifier"]) >= 43


def test_the_secret_goes_into_the_body_where_the_provider_wants_it_there(
    provider: hostile.Provider, person: SignOn
) -> None:
    provider.document = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    person.sign_in()
    ((_path, form, headers),) = [one for one in provider.asked if one[0].endswith("/token")]
    assert (form["client_secret"], "Authorization" in headers) == (hostile.SECRET, False)


def test_the_authorization_request_has_pkce_and_scopes(provider: hostile.Provider, person: SignOn) -> None:
    address = person.client.get("/sign-in/oidc/").headers["Location"]
    assert address.startswith(f"{provider.issuer}/authorize?response_type=code&client_id=kcover&")
    assert "code_challenge_method=S256" in address
    assert "scope=openid+profile+email" in address
    cookie = person.client.cookies["kcover_oidc"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/sign-in/oidc/callback/")


# --- names


@pytest.mark.parametrize("taken", ["anna", "Anna", "ANNA"])
def test_an_account_of_that_name_is_not_taken_over(taken: str, clock: Clock, person: SignOn) -> None:
    local = make_user(taken, clock.now, "admin")
    response = person.sign_in()
    assert (code_of(response), response.status_code) == ("oidc_name_taken", 403)
    assert person.opens() == 302
    assert (User.objects.get(), Identity.objects.count()) == (local, 0)


def test_an_account_with_that_address_is_not_taken_over(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    local = make_user("bo", clock.now, "admin")
    User.objects.update(email="bo@example.com")
    provider.claims = {"preferred_username": None, "email": "bo@example.com", "email_verified": True}
    assert person.sign_in().status_code == 302
    assert Identity.objects.get().user != local
    assert Identity.objects.get().user.username == "bo@example.com"


def test_an_admin_links_an_account(clock: Clock, provider: hostile.Provider, person: SignOn) -> None:
    make_user("anna", clock.now, "operator")
    call_command("user", "link", "anna", "--subject", "person-1", "--reason", "same person", stdout=StringIO())
    assert person.sign_in().status_code == 302
    assert person.opens() == 200
    (act,) = acts("identity.linked")
    assert (act.user, act.issuer, act.subject_id, act.reason) == ("anna", provider.issuer, "person-1", "same person")
    assert roles(User.objects.get()) == {("operator", None, "hand")}


def test_an_identity_is_linked_to_one_account(clock: Clock, person: SignOn) -> None:
    make_user("bo", clock.now)
    person.sign_in()
    with pytest.raises(CommandError, match="already linked to the account anna"):
        call_command("user", "link", "bo", "--subject", "person-1")


def test_unlinking_ends_the_sessions_and_takes_the_roles_of_groups(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    map_group("gpu-operators", "operator", clock.now)
    provider.claims = {"groups": ["gpu-operators"]}
    person.sign_in()
    call_command("user", "unlink", "anna", "--subject", "person-1", stdout=StringIO())
    assert person.opens() == 302
    assert roles(User.objects.get()) == set()
    with pytest.raises(CommandError, match="not linked"):
        call_command("user", "unlink", "anna", "--subject", "person-1")


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "a b", "email": "anna@example.com"}, "anna@example.com"),
        ({"preferred_username": 7, "email": None}, "person-1"),
        ({"preferred_username": "x" * 151}, "person-1"),
        ({"preferred_username": "王伟", "email": "wangwei@example.com"}, "wangwei@example.com"),
        ({"preferred_username": "José"}, "Jose"),
        ({"preferred_username": "ann\u0430"}, "person-1"),  # a Cyrillic letter
        ({"preferred_username": "ＡＮＮＡ"}, "ANNA"),
        ({"preferred_username": "Admin"}, "person-1"),
        ({"preferred_username": "ﬁ" * 100}, "person-1"),  # longer in ASCII
    ],
)
def test_the_first_usable_claim_is_the_name(
    claims: dict[str, Any], name: str, provider: hostile.Provider, person: SignOn
) -> None:
    provider.claims = claims
    person.sign_in()
    assert User.objects.get().username == name


def test_without_a_usable_name_there_is_no_account(provider: hostile.Provider, person: SignOn) -> None:
    provider.claims = {"preferred_username": None, "sub": "auth0|5f"}
    assert code_of(person.sign_in()) == "oidc_name_invalid"
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("known", "wanted"),
    [("annal", "anna1"), ("Anna", "anná"), ("OTTO", "0tt0"), ("morris", "rnorris"), ("ivan", "lvan")],
)
def test_a_name_that_looks_like_another_accounts_is_refused(
    known: str, wanted: str, clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    make_user(known, clock.now, "admin")
    provider.claims = {"preferred_username": wanted}
    assert code_of(person.sign_in()) in ("oidc_name_alike", "oidc_name_taken")
    assert User.objects.get().username == known


# --- groups


def test_groups_give_roles_per_cluster(
    clock: Clock, provider: hostile.Provider, person: SignOn, east: Cluster, west: Cluster
) -> None:
    map_group("gpu-operators", "operator", clock.now, east)
    map_group("everybody", "viewer", clock.now, west)
    map_group("gpu-admins", "admin", clock.now)
    provider.claims = {"groups": ["gpu-operators", "everybody", "unknown"]}
    person.sign_in()
    user = User.objects.get()
    assert roles(user) == {("operator", "east", "oidc"), ("viewer", "west", "oidc")}
    assert queries.may(user, "operator", east)
    assert not queries.may(user, "operator", west)
    given = Entry.objects.get(verb="role.given", cluster="east")
    assert audit.from_entry(given) == audit.RoleGiven(user="anna", role="operator", source="oidc")
    assert given.actor.startswith("provider:127.0.0.1")


def test_each_sign_in_replaces_the_roles_of_groups_and_keeps_those_given_by_hand(
    clock: Clock, provider: hostile.Provider, person: SignOn, east: Cluster
) -> None:
    map_group("gpu-operators", "operator", clock.now, east)
    map_group("everybody", "viewer", clock.now)
    provider.claims = {"groups": ["gpu-operators", "everybody"]}
    person.sign_in()
    user = User.objects.get()
    services.bind(user, "approver", cluster=east, actor="user:root", now=clock.now)
    provider.claims = {"groups": ["everybody"]}
    person.sign_in()
    assert roles(user) == {("approver", "east", "hand"), ("viewer", None, "oidc")}
    assert [(act.role, act.source) for act in acts("role.taken")] == [("operator", "oidc")]
    provider.claims = {"groups": None}
    person.sign_in()
    assert roles(user) == {("approver", "east", "hand")}
    services.unbind(user, cluster=east, actor="user:root", now=clock.now)
    assert person.opens() == 403


def test_a_role_by_hand_does_not_touch_the_role_of_a_group(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    map_group("everybody", "viewer", clock.now)
    provider.claims = {"groups": "everybody"}  # some providers send one group as a text
    person.sign_in()
    user = User.objects.get()
    services.bind(user, "admin", actor="user:root", now=clock.now)
    services.unbind(user, actor="user:root", now=clock.now)
    assert roles(user) == {("viewer", None, "oidc")}


def test_changing_or_removing_the_role_of_a_group_takes_effect_at_once(
    clock: Clock, provider: hostile.Provider, person: SignOn, east: Cluster
) -> None:
    call_command("group", "set", "ops", "--role", "viewer", "--cluster", "east", stdout=StringIO())
    provider.claims = {"groups": ["ops"]}
    person.sign_in()
    user = User.objects.get()
    call_command("group", "set", "ops", "--role", "operator", "--cluster", "east", "--reason", "x", stdout=StringIO())
    assert queries.may(User.objects.get(), "operator", east)
    listed = StringIO()
    call_command("group", "list", stdout=listed)
    assert listed.getvalue() == "ops: operator in east\n"
    call_command("group", "remove", "ops", "--cluster", "east", stdout=StringIO())
    assert roles(user) == set()
    assert [act.role for act in acts("group.")] == ["viewer", "operator", "operator"]
    assert [act.role for act in acts("role.taken")] == ["viewer", "operator"]
    with pytest.raises(CommandError, match="no role"):
        call_command("group", "remove", "ops", "--cluster", "east")


def test_a_role_stays_while_another_group_gives_it(clock: Clock, provider: hostile.Provider, person: SignOn) -> None:
    map_group("a", "viewer", clock.now)
    map_group("b", "viewer", clock.now)
    provider.claims = {"groups": ["a", "b"]}
    person.sign_in()
    user = User.objects.get()
    oidc.unmap_group("a", actor="user:root", now=clock.now)
    assert roles(user) == {("viewer", None, "oidc")}
    oidc.unmap_group("b", actor="user:root", now=clock.now)
    assert roles(user) == set()


def test_a_group_has_a_custom_role_in_a_pool(
    clock: Clock, provider: hostile.Provider, person: SignOn, east: Cluster
) -> None:
    desk = services.make_role("desk", ["read", "check"], giver=None, actor="user:root", now=clock.now)
    call_command("group", "set", "ops", "--role", "desk", "--cluster", "east", "--pool", "a100", stdout=StringIO())
    provider.claims = {"groups": ["ops"]}
    person.sign_in()
    user = User.objects.get()
    assert queries.verbs_at(user, east, "a100") == {"read", "check"}
    assert queries.verbs_at(user, east, "h100") == set()
    listed = StringIO()
    call_command("group", "list", stdout=listed)
    assert listed.getvalue() == "ops: desk in east pool a100\n"
    RoleBinding.objects.all().delete()
    with pytest.raises(services.Refused):  # the group would give it at the next sign-in
        services.delete_role(desk, actor="user:root", now=clock.now)
    with pytest.raises(services.Refused):
        oidc.map_group("ops", "viewer", pool="a100", actor="user:root", now=clock.now)


@pytest.mark.parametrize(("group", "role"), [("", "viewer"), ("x" * 256, "viewer"), ("a\nb", "viewer"), ("x", "king")])
def test_a_mapping_that_makes_no_sense_is_refused(group: str, role: str, clock: Clock) -> None:
    with pytest.raises(services.Refused):
        map_group(group, role, clock.now)


def test_the_groups_may_come_from_the_userinfo_endpoint(
    clock: Clock, provider: hostile.Provider, person: SignOn
) -> None:
    map_group("everybody", "viewer", clock.now)
    provider.claims, provider.userinfo = {"groups": None}, {"groups": ["everybody"]}
    person.sign_in()
    assert person.opens() == 200


def test_userinfo_of_another_person_is_refused(provider: hostile.Provider, person: SignOn) -> None:
    provider.claims, provider.userinfo = {"groups": None}, {"sub": "person-2", "groups": ["everybody"]}
    response = person.sign_in()
    assert (code_of(response), response.status_code) == ("oidc_userinfo_mixed_up", 400)


def test_another_claim_can_contain_the_groups(
    clock: Clock, provider: hostile.Provider, person: SignOn, settings: Any
) -> None:
    settings.KCOVER_OIDC = replace(provider.client, groups_claim="https://example.com/roles")
    map_group("everybody", "viewer", clock.now)
    provider.claims = {"https://example.com/roles": ["everybody"]}
    person.sign_in()
    assert person.opens() == 200


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"groups": None, "_claim_names": {"groups": "src1"}}, "oidc_groups_overage"),
        ({"groups": {"a": 1}}, "oidc_groups_invalid"),
        ({"groups": [7]}, "oidc_groups_invalid"),
        ({"groups": ["x"] * 1001}, "oidc_groups_invalid"),
    ],
)
def test_groups_that_cannot_be_read_are_no_sign_in(
    claims: dict[str, Any], code: str, provider: hostile.Provider, person: SignOn
) -> None:
    provider.claims = claims
    response = person.sign_in()
    assert (code_of(response), response.status_code) == (code, 403)
    assert person.opens() == 302


# --- sessions and passwords


def test_a_disabled_account_is_refused(clock: Clock, person: SignOn) -> None:
    person.sign_in()
    services.disable(User.objects.get(), actor="user:root", now=clock.now)
    assert person.opens() == 302
    response = person.sign_in()
    assert (code_of(response), response.status_code) == ("oidc_account_disabled", 403)
    assert person.opens() == 302


def test_a_sign_in_replaces_the_session_of_the_browser(clock: Clock, person: SignOn) -> None:
    make_user("bo", clock.now)
    person.client.post("/sign-in/", {"username": "bo", "password": PASSWORD})
    before = person.client.cookies["sessionid"].value
    person.sign_in()
    assert person.client.cookies["sessionid"].value != before
    assert [session.user.username for session in Session.objects.filter(user__isnull=False) if session.user] == ["anna"]


def test_signing_out_leads_to_the_provider(provider: hostile.Provider, person: SignOn) -> None:
    person.sign_in()
    response = person.client.post("/sign-out/")
    address = response.context["address"]
    assert address.startswith(f"{provider.issuer}/end?id_token_hint=ey")
    assert "post_logout_redirect_uri=http%3A%2F%2Ftestserver%2Fsign-in%2F" in address
    assert person.opens() == 302
    assert acts("user.signed_out") == [audit.SignedOut(user="anna")]


def test_a_provider_without_sign_out_leads_to_the_sign_in_page(provider: hostile.Provider, person: SignOn) -> None:
    provider.document = {"end_session_endpoint": None}
    person.sign_in()
    assert person.client.post("/sign-out/").headers["Location"] == "/sign-in/"


def test_a_password_session_ends_here_only(clock: Clock, person: SignOn) -> None:
    make_user("bo", clock.now)
    person.client.post("/sign-in/", {"username": "bo", "password": PASSWORD})
    assert person.client.post("/sign-out/").headers["Location"] == "/sign-in/"


@pytest.mark.parametrize(
    ("passwords", "role", "let_in"),
    [
        ("everyone", "viewer", True),
        ("admins", "admin", True),
        ("admins", "viewer", False),
        ("nobody", "admin", False),
    ],
)
def test_password_sign_in_is_limited_to_the_roles_of_the_setting(
    passwords: str, role: str, let_in: bool, clock: Clock, provider: hostile.Provider, settings: Any
) -> None:
    settings.KCOVER_OIDC = replace(provider.client, passwords=passwords)
    make_user("bo", clock.now, role)
    browser = Browser()
    response = browser.sign_in("bo")
    assert (response.status_code == 302) is let_in
    assert (browser.client.get("/account/").status_code == 200) is let_in
    if not let_in:
        (error,) = response.context["form"].errors.as_data()["__all__"]
        assert error.code == "password_sign_in_off"


def test_an_admin_through_a_group_is_no_break_glass_account(
    clock: Clock, provider: hostile.Provider, person: SignOn, settings: Any
) -> None:
    settings.KCOVER_OIDC = replace(provider.client, passwords="admins")
    map_group("gpu-admins", "admin", clock.now)
    provider.claims = {"groups": ["gpu-admins"]}
    person.sign_in()
    services.set_password(User.objects.get(), PASSWORD, actor="user:root", now=clock.now)
    assert Browser().sign_in("anna").status_code == 200


def test_a_wrong_password_does_not_reveal_whether_the_account_exists(
    clock: Clock, provider: hostile.Provider, settings: Any
) -> None:
    settings.KCOVER_OIDC = replace(provider.client, passwords="admins")
    make_user("bo", clock.now)
    for name in ("bo", "stranger"):
        (error,) = Browser().sign_in(name, "wrong horse battery").context["form"].errors.as_data()["__all__"]
        assert error.code == "invalid_login"


# --- back-channel logout


def test_the_provider_ends_the_sessions_of_a_person(provider: hostile.Provider, person: SignOn) -> None:
    person.sign_in()
    other = SignOn(provider)
    other.sign_in()
    response = person.client.post("/sign-in/oidc/ended/", {"logout_token": provider.logout_token()})
    assert (response.status_code, response.headers["Cache-Control"].count("no-store")) == (200, 1)
    assert (person.opens(), other.opens()) == (302, 302)
    (act,) = acts("user.signed_out_by_provider")
    assert act == audit.SignedOutByProvider(user="anna", issuer=provider.issuer, count=2)


def test_the_provider_ends_one_session(provider: hostile.Provider, person: SignOn) -> None:
    provider.claims = {"sid": "s1"}
    person.sign_in()
    provider.claims = {"sid": "s2"}
    other = SignOn(provider)
    other.sign_in()
    token = provider.logout_token(sub=None, sid="s2")
    assert person.client.post("/sign-in/oidc/ended/", {"logout_token": token}).status_code == 200
    assert (person.opens(), other.opens()) == (403, 302)


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": {}},
        {"events": {"http://schemas.openid.net/event/backchannel-logout": 1}},
        {"nonce": "x"},
        {"sub": None},
        {"sub": 7},
        {"jti": None},
        {"aud": "another-client"},
        {"iss": "https://other.example"},
        {"exp": 1},
    ],
)
def test_other_tokens_end_no_session(wrong: dict[str, Any], provider: hostile.Provider, person: SignOn) -> None:
    person.sign_in()
    response = person.client.post("/sign-in/oidc/ended/", {"logout_token": provider.logout_token(**wrong)})
    assert response.status_code == 400
    assert person.opens() == 403


def test_an_old_logout_token_is_refused(clock: Clock, provider: hostile.Provider, person: SignOn) -> None:
    token = provider.logout_token(exp=None)
    provider.now = clock.advance(minutes=7)
    person.sign_in()
    assert person.client.post("/sign-in/oidc/ended/", {"logout_token": token}).status_code == 400
    assert person.opens() == 403


def test_an_id_token_is_no_logout_token(provider: hostile.Provider, person: SignOn) -> None:
    person.sign_in()
    response = person.client.post("/sign-in/oidc/ended/", {"logout_token": provider.id_token()})
    assert (response.status_code, response.json()["code"]) == (400, "oidc_token_incomplete")
    assert person.client.get("/sign-in/oidc/ended/").status_code == 405
    assert timedelta(0) < oidc.FLOW_LIFETIME


def test_the_page_of_accounts_marks_roles_of_groups(clock: Clock, provider: hostile.Provider, person: SignOn) -> None:
    map_group("everybody", "viewer", clock.now)
    provider.claims = {"groups": ["everybody"]}
    person.sign_in()
    make_user("root", clock.now, "admin")
    admin = Browser()
    admin.sign_in("root")
    assert admin.client.get("/access/").content.decode().count("Single sign-on") == 1
