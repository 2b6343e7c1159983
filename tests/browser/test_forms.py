"""Forms that need a script: an approval link, a dialog with checkboxes, and a try beside the policy."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import clicks, live, violations, violations_in_both_themes


def test_an_approval_link_leaves_the_address_and_is_checked(open_page: Open):
    page = open_page("/approve/#not-a-token", signed_in=False, tolerant=True)
    expect(page.get_by_role("heading", name="Invalid link")).to_be_visible()
    assert page.url.endswith("/approve/")
    assert page.evaluate("history.length") <= 3  # the address with the token was replaced
    open_page("/approve/", signed_in=False).get_by_label("Approval link").wait_for()


def test_a_role_is_created_in_a_dialog_by_its_labels(open_page: Open):
    page = open_page("/access/", width=390, theme="dark")
    page.get_by_role("link", name="New role", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("night-shift")
    dialog.get_by_label("Pause automation").check()
    assert violations(page) == []
    dialog.get_by_role("button", name="Create role").click()
    row = page.get_by_role("row").filter(has=page.get_by_text("night-shift", exact=True))
    expect(row).to_contain_text("Pause automation")
    live(page)  # its scripts open dialogs now
    row.get_by_role("link", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("night-shift", exact=True)).to_have_count(0)


def test_a_policy_is_tried_beside_its_text(open_page: Open):
    page = open_page("/policies/heal/edit/")
    expect(page.get_by_label("Node", exact=True)).to_be_hidden()
    page.get_by_label("Try it on").select_option("now")
    expect(page.get_by_label("Days")).to_be_hidden()
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#try")).to_contain_text("Done")
    assert page.url.endswith("/policies/heal/edit/")
    assert violations(page) == []


def test_a_rack_is_put_under_maintenance(open_page: Open):
    page = open_page("/")
    page.get_by_role("link", name="Safety", exact=True).first.click()
    expect(page.get_by_role("heading", name="Safety", exact=True)).to_be_visible()
    live(page)
    page.get_by_role("link", name="Schedule maintenance", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Names")).to_be_focused()  # the first that holds no choice yet
    dialog.get_by_label("Cluster").select_option(index=1)
    dialog.get_by_label("Select nodes by").select_option("rack")
    rack = dialog.locator("[data-scope-value]").first
    expect(rack).to_contain_text("rack")  # not a node of the list before
    rack.focus()
    page.keyboard.press("Enter")
    expect(dialog.locator(".scope-sum")).to_contain_text("GPUs")
    expect(dialog.locator("[data-scope-value]").first).to_have_attribute("aria-pressed", "true")
    expect(dialog.locator("[data-scope-value]").first).to_be_focused()  # the answer does not take the focus
    covered = dialog.locator(".scope-sum strong").inner_text()
    assert covered.split()[0].isdecimal()
    assert violations_in_both_themes(page) == []
    dialog.get_by_label("Duration").fill("2 h")
    dialog.get_by_label("Reason").fill("new cables")
    dialog.get_by_role("button", name="Save").click()
    row = page.locator("li", has_text="new cables")
    expect(row).to_contain_text("rack")
    assert clicks(page) <= 3  # two links and Save; the rack is chosen by a key
    live(page)
    row.get_by_role("link", name="End now").click()
    page.get_by_label("Reason").fill("done")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(row).to_have_count(0)


def test_a_refused_form_puts_the_focus_on_the_field_that_was_wrong(open_page: Open):
    page = open_page("/safety/", tolerant=True)
    live(page)
    page.get_by_role("link", name="Schedule maintenance", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Names").fill("no-such-node")
    dialog.get_by_label("Duration").fill("soon")
    dialog.get_by_label("Reason").fill("new cables")
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Duration")).to_have_attribute("aria-invalid", "true")
    expect(dialog.locator("[aria-invalid=true]").first).to_be_focused()


def test_a_selection_of_nodes_is_put_under_maintenance_and_the_frame_stays(open_page: Open):
    page = open_page("/nodes/")
    page.set_viewport_size({"width": 1440, "height": 320})
    for box in range(2):
        page.locator("[data-pick]").nth(box).check()
    page.mouse.wheel(0, 400)
    page.wait_for_function("() => scrollY > 0")
    side, frame, heads, height = page.evaluate(
        """() => {
          const place = (name) => document.querySelector(name).getBoundingClientRect();
          return [place(".side").top, place(".frame").top, place("table.rows th").top, place(".frame").height];
        }"""
    )  # in one frame: the scroll goes on, and moves what is sticky by fractions of a pixel
    assert max(abs(side), abs(frame), abs(heads - height)) <= 1
    page.get_by_role("button", name="Schedule maintenance").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".scope-sum strong")).to_have_text("2 nodes")
    assert len(dialog.get_by_label("Names").input_value().split(", ")) == 2


def test_a_node_is_excluded_by_a_scope_and_the_exclusion_is_ended(open_page: Open, take_node: TakeNode):
    node = take_node()
    page = open_page("/safety/")
    live(page)
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="What the guards allow", exact=True).click()
    dialog.get_by_label("Select nodes by").select_option("nodes")
    dialog.get_by_label("Names").fill(node)
    expect(dialog.locator(".scope-sum strong")).to_have_text("1 node")
    assert violations_in_both_themes(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Exclude nodes", exact=True).click()
    dialog.get_by_label("Select nodes by").select_option("nodes")
    dialog.get_by_label("Names").fill(node)
    expect(dialog.locator(".scope-sum strong")).to_have_text("1 node")
    assert violations_in_both_themes(page) == []
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("Exclude 1 node")
    dialog.get_by_label("Reason").fill("lent to the lab")
    dialog.get_by_role("button", name="Exclude: 1").click()
    expect(dialog).to_contain_text("Result")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name=node, exact=True)).to_be_visible()
    page.get_by_role("link", name=node, exact=True).click()
    page.locator("#act-end_exclusion").click()
    dialog.get_by_label("Reason").fill("back from the lab")
    dialog.get_by_role("button", name="End exclusion").click()
    expect(page).to_have_url(re.compile("/rescues/"))
    page.goto(page.url.partition("/rescues/")[0] + f"/nodes/sim/{node}/")
    expect(page.locator("#act-exclude")).to_be_visible()


@pytest.mark.usefixtures("_guards_kept")
def test_a_group_of_nodes_gets_a_budget_and_loses_it(open_page: Open):
    page = open_page("/safety/", width=390)
    live(page)
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Limit a group of nodes in sim").click()
    dialog.get_by_label("Select nodes by").select_option("labels")
    dialog.get_by_label("Names").fill("kubernetes.io/hostname")
    expect(dialog.locator(".scope-sum strong")).to_contain_text("nodes")
    dialog.get_by_label("Maximum nodes").fill("2")
    dialog.get_by_label("Reason").fill("spare capacity")
    assert violations_in_both_themes(page) == []
    dialog.get_by_role("button", name="Save").click()
    gauge = page.locator(".gauge").filter(has_text="label kubernetes.io/hostname")
    expect(gauge).to_contain_text("of 2")
    expect(page.locator("#toast")).to_have_text("Saved: Budget of a group in sim")
    expect(page.get_by_role("link", name="Limit a group of nodes in sim")).to_be_focused()
    assert clicks(page) == 2  # the link and Save
    gauge.get_by_role("link", name="Change").click()
    expect(dialog.get_by_label("Names")).to_have_value("kubernetes.io/hostname")
    expect(dialog.get_by_label("Maximum nodes")).to_have_value("2")
    dialog.get_by_label("Maximum nodes").fill("")
    dialog.get_by_label("Reason").fill("enough of them again")
    dialog.get_by_role("button", name="Save").click()
    expect(gauge).to_have_count(0)
