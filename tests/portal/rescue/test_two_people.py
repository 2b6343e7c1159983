"""Two-person control: owners of tokens, accounts that an admin controls, acts by hand, cancelled questions."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover_portal.accounts import queries as accounts, services as account_services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import invitations
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Rescue
from tests.codes import refused
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def approve_mode(db: None) -> Iterator[World]:
    world = World()
    Cluster.objects.update(mode="approve")
    yield world
    world.uninstall()


@pytest.fixture
def two_asked(db: None) -> Iterator[World]:
    """A rule that needs two people holds the node."""
    world = World(policy=GATED % 2)
    world.fault(62)
    world.work()
    yield world
    world.uninstall()


def user(world: World, name: str, *, by: str = "command:root", role: str = "approver") -> User:
    return account_services.make_user(name, password=PASSWORD, role=role, created_by=by, now=world.now)


def reboot(world: World, by: str = "user:olga", **more: str) -> Rescue:
    return services.request(world.node(), "reboot", actor=by, reason="stuck", now=world.now, **more)


def approve(world: World, rescue: Rescue, by: str) -> Rescue:
    return services.approve(rescue, actor=f"user:{by}", reason="seen", now=world.now, via="console")


def test_inv_11_an_act_by_hand_waits_in_approve_mode(approve_mode: World) -> None:
    held = reboot(approve_mode)
    assert (held.state, held.hold, held.approvers, held.requesters) == ("held", "approval", 1, ["user:olga"])
    approve_mode.work()
    assert not approve_mode.kube.get_node(NODE).unschedulable
    approve(approve_mode, held, "ann")
    approve_mode.until_reboot_is_asked()


@pytest.mark.parametrize(("verb", "state"), [("cordon", "running"), ("drain", "held"), ("reboot", "held")])
def test_a_cordon_by_hand_is_immediate(approve_mode: World, verb: str, state: str) -> None:
    assert services.preview(approve_mode.node(), verb, now=approve_mode.now).approvers == int(state == "held")
    made = services.request(approve_mode.node(), verb, actor="user:olga", reason="", now=approve_mode.now)
    assert made.state == state


@pytest.mark.parametrize(
    ("setting", "mode", "state"),
    [("mode", "enforce", "running"), ("always", "enforce", "held"), ("never", "approve", "running")],
)
def test_the_setting_decides_whether_manual_acts_wait(world: World, setting: str, mode: str, state: str) -> None:
    Cluster.objects.update(hand_approval=setting, mode=mode)
    assert reboot(world).state == state


def test_inv_44_the_owner_of_a_token_is_its_requester(approve_mode: World) -> None:
    held = reboot(approve_mode, "token:operator kco_MIzF", person="user:olga", requester="token")
    with refused(services.RescueRefused, "own_request"):
        approve(approve_mode, held, "olga")
    assert approve(approve_mode, held, "ann").state == "running"


def test_inv_44_a_token_neither_approves_nor_stands_for_a_person(approve_mode: World) -> None:
    held = reboot(approve_mode, "token:operator kco_MIzF", requester="token")
    assert held.requesters == ["token:operator kco_MIzF"]
    for voter, code in (("token:operator kco_MIzF", "own_request"), ("token:operator kco_2222", "vote_of_program")):
        with refused(services.RescueRefused, code):
            services.approve(held, actor=voter, reason="", now=approve_mode.now)
    assert not Approval.objects.exists()


def test_inv_44_an_admin_who_set_the_password_does_not_approve_with_the_account(approve_mode: World) -> None:
    ann = user(approve_mode, "ann")
    held = reboot(approve_mode, "user:eve")
    account_services.set_password(ann, PASSWORD + "2", actor="user:eve", now=approve_mode.now)
    with refused(services.RescueRefused, "vote_controlled"):
        approve(approve_mode, held, "ann")
    Rescue.objects.update(expires_at=approve_mode.now + timedelta(days=2), approval_seconds=2 * 86400)
    approve_mode.now += timedelta(hours=23, minutes=59)
    with refused(services.RescueRefused, "vote_controlled"):
        approve(approve_mode, held, "ann")
    approve_mode.now += timedelta(minutes=1)
    assert approve(approve_mode, held, "ann").state == "running"


@pytest.mark.parametrize("change", ["new", "role", "enabled"])
def test_inv_44_an_admin_who_made_the_account_or_gave_its_role_does_not_approve_with_it(
    two_asked: World, change: str
) -> None:
    ann = user(two_asked, "ann", by="user:eve" if change == "new" else "command:root")
    if change == "role":
        account_services.bind(ann, "admin", cluster=None, actor="user:eve", now=two_asked.now)
    if change == "enabled":
        account_services.disable(ann, actor="command:root", now=two_asked.now)
        account_services.enable(ann, actor="user:eve", now=two_asked.now)
    approve(two_asked, two_asked.rescue(), "ann")
    with refused(services.RescueRefused, "vote_same_person"):
        approve(two_asked, two_asked.rescue(), "eve")
    assert Approval.objects.get().controllers == ["user:eve"]
    assert approve(two_asked, two_asked.rescue(), "bob").state == "running"


def test_inv_44_an_inviter_controls_the_account_from_the_use_of_the_link(approve_mode: World) -> None:
    """The link lives three days, and its maker can choose the password with it."""
    _, secret = invitations.invite_new("ann", role="approver", actor="user:eve", now=approve_mode.now)
    approve_mode.now += timedelta(hours=47)
    invitations.accept(secret, PASSWORD, address="", now=approve_mode.now)
    held = reboot(approve_mode, "user:eve")
    with refused(services.RescueRefused, "vote_controlled"):
        approve(approve_mode, held, "ann")
    assert accounts.controllers("user:ann", at=approve_mode.now) == ["user:eve"]
    assert accounts.controllers("user:ann", at=approve_mode.now + timedelta(days=1)) == []


def test_inv_44_two_accounts_of_one_admin_are_one_person(two_asked: World) -> None:
    for name in ("ann", "bob"):
        user(two_asked, name, by="user:eve")
    approve(two_asked, two_asked.rescue(), "ann")
    with refused(services.RescueRefused, "vote_same_person"):
        approve(two_asked, two_asked.rescue(), "bob")
    assert two_asked.rescue().state == "held"


@pytest.mark.parametrize("change", ["disabled", "role"])
def test_inv_44_an_approval_of_an_account_that_lost_its_right_cannot_be_completed(
    two_asked: World, change: str
) -> None:
    """A stolen account gave the first approval, and an admin disabled it."""
    ann = user(two_asked, "ann")
    approve(two_asked, two_asked.rescue(), "ann")
    if change == "disabled":
        account_services.disable(ann, actor="user:eve", now=two_asked.now)
    else:
        account_services.bind(ann, "operator", actor="user:eve", now=two_asked.now)
    with refused(services.RescueRefused, "vote_of_gone"):
        approve(two_asked, two_asked.rescue(), "bob")
    two_asked.work()
    assert (two_asked.rescue().state, two_asked.step("drain").attempts) == ("held", 0)
    ended = services.reject(two_asked.rescue(), actor="user:bob", reason="again", now=two_asked.now)
    assert ended.state == "cancelled"


def test_inv_44_the_request_of_a_disabled_account_cannot_be_approved(approve_mode: World) -> None:
    olga = user(approve_mode, "olga", role="operator")
    held = reboot(approve_mode)
    account_services.disable(olga, actor="user:eve", now=approve_mode.now)
    with refused(services.RescueRefused, "vote_of_gone"):
        approve(approve_mode, held, "bob")
    assert approve_mode.rescue().state == "held"


def test_control_passes_on_from_account_to_account(world: World) -> None:
    user(world, "ann", by="user:bob")
    world.now += timedelta(hours=2)
    account_services.set_password(user(world, "bob"), PASSWORD + "2", actor="user:eve", now=world.now)
    assert accounts.controllers("user:bob", at=world.now) == ["user:eve"]
    assert accounts.controllers("user:ann", at=world.now) == ["user:bob"], "eve came after bob had set it"
    world.now += timedelta(hours=1)
    account_services.set_password(User.objects.get(username="ann"), PASSWORD + "3", actor="user:bob", now=world.now)
    assert accounts.controllers("user:ann", at=world.now) == ["user:bob", "user:eve"]
    assert accounts.controllers("user:bob", at=world.now + timedelta(days=1)) == []
    assert accounts.controllers("token:operator kco_1", at=world.now) == []


def test_inv_44_a_requester_whose_password_was_set_counts_as_that_admin_too(approve_mode: World) -> None:
    account_services.set_password(user(approve_mode, "olga"), PASSWORD + "2", actor="user:eve", now=approve_mode.now)
    held = reboot(approve_mode)
    assert held.requesters == ["user:olga", "user:eve"]
    with refused(services.RescueRefused, "vote_of_requester"):
        approve(approve_mode, held, "eve")


def test_a_denial_counts_from_any_account(approve_mode: World) -> None:
    ann = user(approve_mode, "ann")
    held = reboot(approve_mode, "user:eve")
    account_services.set_password(ann, PASSWORD + "2", actor="user:eve", now=approve_mode.now)
    assert services.reject(held, actor="user:ann", reason="no", now=approve_mode.now).state == "cancelled"


def test_an_operator_cannot_cancel_a_two_person_request(two_asked: World) -> None:
    rescue = two_asked.rescue()
    with refused(services.RescueRefused, "question_of_approver"):
        services.cancel(rescue, actor="user:olga", reason="mine", now=two_asked.now)
    services.cancel(rescue, actor="user:ann", reason="wrong node", now=two_asked.now, approver=True)
    entry = Entry.objects.get(verb="rescue.question_cancelled")
    assert (entry.actor, entry.data["reason"], entry.rescue) == ("user:ann", "wrong node", rescue.pk)


@pytest.mark.parametrize("verb", ["release", "uncordon"])
def test_the_node_of_a_two_person_request_cannot_be_released(two_asked: World, verb: str) -> None:
    with refused(services.RescueRefused, "question_first"):
        services.request(two_asked.node(), verb, actor="user:olga", reason="", now=two_asked.now)
    assert two_asked.rescue().state == "held"


@pytest.mark.parametrize("ended", ["cancelled", "rejected", "expired"])
def test_inv_11_manual_acts_on_the_node_of_a_two_person_request_need_as_many_approvals(
    two_asked: World, ended: str
) -> None:
    rescue = two_asked.rescue()
    if ended == "cancelled":
        services.cancel(rescue, actor="user:ann", reason="", now=two_asked.now, approver=True)
    elif ended == "rejected":
        services.reject(rescue, actor="user:ann", reason="", now=two_asked.now)
    else:
        two_asked.pass_time(3601)
        services.sweep(now=two_asked.now)
    by_hand = reboot(two_asked, "user:ann")
    assert (by_hand.state, by_hand.approvers) == ("held", 2)
    with refused(services.RescueRefused, "own_request"):
        approve(two_asked, by_hand, "ann")
    assert approve(two_asked, by_hand, "bob").state == "held"
    assert approve(two_asked, by_hand, "carl").state == "running"


def test_the_node_stays_bound_for_a_day_after_its_fault_was_closed(two_asked: World) -> None:
    services.cancel(two_asked.rescue(), actor="user:ann", reason="", now=two_asked.now, approver=True)
    incidents.close_by_hand(Incident.objects.get(), actor="user:ann", reason="gone", now=two_asked.now)
    assert services.preview(two_asked.node(), "reboot", now=two_asked.now).approvers == 2
    two_asked.now += timedelta(days=1)
    assert services.preview(two_asked.node(), "reboot", now=two_asked.now).approvers == 0


def test_a_requester_takes_a_two_person_request_back(two_asked: World) -> None:
    services.reject(two_asked.rescue(), actor="user:ann", reason="", now=two_asked.now)
    by_hand = reboot(two_asked)
    assert services.cancel(by_hand, actor="user:olga", reason="", now=two_asked.now).state == "cancelled"
