"""Approval links: valid for one person, one plan, one step and one request only."""

from datetime import timedelta

import pytest
from django.core import signing
from django.utils import timezone

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import RoleBinding, User
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.models import Approval, Rescue
from tests.codes import refused
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def gated(request):
    world = World(policy=GATED % getattr(request, "param", 1))
    world.now = timezone.now()  # signatures have the clock's time
    world.fault(62)
    world.work()
    yield world
    world.uninstall()


@pytest.fixture
def ann(gated: World) -> User:
    return approver(gated, "ann")


def approver(world: World, name: str, role: str = "approver") -> User:
    return accounts.make_user(
        name, password=PASSWORD, role=role, cluster=world.cluster, created_by="test", now=world.now
    )


def token(world: World, user: User) -> str:
    return approval_links.approve_link(world.rescue(), user, maker="").rpartition("#")[2]


def refusal(text: str, world: World) -> str:
    with pytest.raises(approval_links.LinkError) as caught:
        approval_links.read(text, now=world.now)
    return caught.value.code


def fresh(user: User) -> User:
    return User.objects.get(pk=user.pk)  # its roles are kept with the object


def test_a_link_opens_its_request_for_its_person(gated: World, ann: User, settings) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example/"
    assert approval_links.approve_link(gated.rescue(), ann, maker="").startswith("https://portal.example/approve/#")
    opened = approval_links.read(token(gated, ann), now=gated.now)
    assert (opened.rescue, opened.user) == (gated.rescue(), ann)


def test_a_changed_link_is_refused(gated: World, ann: User) -> None:
    good = token(gated, ann)
    assert refusal(good[:-1] + ("A" if good[-1] != "A" else "B"), gated) == approval_links.BAD
    assert refusal("nonsense", gated) == approval_links.BAD
    assert refusal(signing.TimestampSigner(salt="other").sign_object([1, "", 0, ann.pk]), gated) == approval_links.BAD
    assert (
        refusal(signing.TimestampSigner(salt=approval_links.SALT).sign_object({"of": "another version"}), gated)
        == approval_links.BAD
    )


def test_the_person_must_have_the_role_when_it_is_used(gated: World, ann: User) -> None:
    good = token(gated, ann)
    RoleBinding.objects.update(role="operator")
    assert refusal(good, gated) == approval_links.NOBODY
    RoleBinding.objects.update(role="admin")
    assert approval_links.read(good, now=gated.now).user == ann
    User.objects.update(is_active=False)
    assert refusal(good, gated) == approval_links.NOBODY
    User.objects.all().delete()
    assert refusal(good, gated) == approval_links.NOBODY


def test_a_link_is_valid_as_long_as_the_request(gated: World, ann: User) -> None:
    good = token(gated, ann)
    gated.now += timedelta(minutes=59)
    approval_links.read(good, now=gated.now)
    gated.now += timedelta(minutes=1)
    assert refusal(good, gated) == approval_links.EXPIRED
    services.sweep(now=gated.now)
    assert refusal(good, gated) == approval_links.EXPIRED


def test_an_old_link_is_expired(gated: World, ann: User, monkeypatch) -> None:
    with monkeypatch.context() as then:
        then.setattr(signing.time, "time", lambda: timezone.now().timestamp() - 3601)
        old = token(gated, ann)
    assert refusal(old, gated) == approval_links.EXPIRED


def test_another_plan_or_step_voids_a_link(gated: World, ann: User) -> None:
    good = token(gated, ann)
    Rescue.objects.update(plan_hash="f" * 16)
    assert refusal(good, gated) == approval_links.VOID
    again = token(gated, ann)
    Rescue.objects.update(gate=2)
    assert refusal(again, gated) == approval_links.VOID


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_a_link_is_used_once(gated: World, ann: User) -> None:
    good = token(gated, ann)
    with refused(services.RescueRefused, "link_needs_sign_in"):
        services.approve(gated.rescue(), actor="user:ann", reason="seen", now=gated.now, via="link")
    services.approve(gated.rescue(), actor="user:ann", reason="seen", now=gated.now, via="console")
    assert refusal(good, gated) == approval_links.ANSWERED
    assert Approval.objects.get().via == "console"


def test_an_answered_request_ends_a_link(gated: World, ann: User) -> None:
    good = token(gated, ann)
    services.reject(gated.rescue(), actor="user:bob", reason="no", now=gated.now)
    assert refusal(good, gated) == approval_links.OVER


def test_no_link_is_made_for_a_person_who_cannot_answer(gated: World, ann: User) -> None:
    with refused(services.RescueRefused, "may_not_approve"):
        approval_links.approve_link(gated.rescue(), approver(gated, "olaf", "operator"), maker="")
    Rescue.objects.update(requested_by="user:ann")
    with refused(services.RescueRefused, "approver_is_requester"):
        approval_links.approve_link(gated.rescue(), ann, maker="")
    with refused(services.RescueRefused, "own_request_link"):
        approval_links.invite(gated.rescue(), approver(gated, "bob"), maker=ann, now=gated.now)
    services.reject(gated.rescue(), actor="user:bob", reason="no", now=gated.now)
    with refused(services.RescueRefused, "not_awaiting_approval"):
        approval_links.approve_link(gated.rescue(), fresh(ann), maker="")


def test_a_link_made_for_another_person_is_on_record(gated: World, ann: User) -> None:
    approval_links.invite(gated.rescue(), approver(gated, "bob"), maker=ann, now=gated.now)
    entry = Entry.objects.get(verb="rescue.link_made")
    assert (entry.actor, entry.data["approver"]) == ("user:ann", "user:bob")


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_an_admin_who_makes_links_gets_no_second_vote(gated: World, ann: User) -> None:
    bob = approver(gated, "bob")
    with refused(services.RescueRefused, "admin_makes_links"):
        approval_links.invite(gated.rescue(), bob, maker=ann, now=gated.now)
    approval_links.invite(gated.rescue(), ann, maker=ann, now=gated.now)
    approval_links.invite(gated.rescue(), bob, maker=approver(gated, "eve", "admin"), now=gated.now)
