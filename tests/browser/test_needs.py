"""What an operator does at 3 a.m. from the home page: see, understand, answer; with bounds on clicks and keys."""

import re
from itertools import pairwise

from playwright.sync_api import Page, expect

from tests.browser.conftest import Ask, Open, TakeNode
from tests.browser.pages import TARGET_SIZE, settled, violations_in_both_themes
from tests.story.product import Product


class Hands:
    """Counts what a person does: clicks, or keys pressed; a text that is typed is one."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.acts = 0

    def press(self, key: str) -> None:
        self.acts += 1
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.acts += 1
        self.page.keyboard.type(text)


def numbers(page: Page) -> list[str]:
    """The badge of the navigation, the tile, and the number of cards."""
    badge = page.locator("#needs-count .count")
    tile = page.locator(".figures-needs b")
    return [badge.inner_text().split()[0], tile.inner_text(), str(page.locator("section.needs > ul > li.need").count())]


def test_an_operator_sees_why_and_answers_by_keyboard_and_by_clicks(
    open_page: Open, product: Product, ask: Ask
) -> None:
    questions = ask(2)
    phone = open_page("/", language="zh-hans", width=390)
    expect(phone.locator("li.need[data-kind=approval]")).to_contain_text("是否批准")
    assert not phone.evaluate("document.documentElement.scrollWidth > innerWidth")
    page = open_page("/")
    settled(page)
    card = page.locator("li.need[data-kind=approval]")
    expect(card).to_have_count(1)  # one cause
    for text in (
        "2 nodes",
        "Rule ask-first#1 requires approval.",
        "Once approved:",
        "Without an answer:",
        "Expires",
        *questions,
    ):
        expect(card).to_contain_text(text)
    expect(page.locator("#needs-count .count")).to_be_visible()
    badge, tile, cards = numbers(page)
    assert badge == tile == cards
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []

    hands, dialog = Hands(page), page.get_by_role("dialog")  # by keys alone
    for key in ("g", "a"):
        hands.press(key)
    page.wait_for_url("**/approvals/")
    settled(page)
    first = page.locator("article.question").first
    expect(first).to_contain_text("If it is denied or unanswered, no other step runs.")
    denied_node = first.locator("h2 a").inner_text()
    hands.press("d")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []
    hands.type("the job must finish")
    hands.press("Enter")
    page.wait_for_url("**/approvals/?answered=*")
    settled(page)
    assert hands.acts == 5
    expect(page.locator(":focus")).not_to_have_text(denied_node)  # the next request

    page.goto(f"{product.url}/")
    settled(page)
    denied = page.locator("li.need[data-kind=rescue]", has_text=denied_node)
    expect(denied).to_contain_text("Denied by anna")  # at once
    expect(denied).to_contain_text("The node stays isolated and takes no new work.")
    before = numbers(page)
    denied.get_by_role("link", name="Acknowledge").click()
    dialog.get_by_role("button", name="Acknowledge").click()
    expect(denied).to_contain_text("acknowledged by anna")
    denied.get_by_role("link", name="Snooze").click()
    dialog.get_by_role("button", name="Snooze").click()
    expect(page.locator("#needs-snoozed summary")).to_contain_text("1 snoozed")
    settled(page)
    expect(page.locator("#needs-count .count")).to_have_text(re.compile(rf"^{int(before[1]) - 1}\b"))
    badge, tile, cards = numbers(page)
    assert badge == tile == cards
    page.locator("#needs-snoozed summary").click()
    page.locator("#needs-snoozed").get_by_role("link", name="Release").click()
    expect(dialog).to_contain_text("The plan")
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []
    page.keyboard.press("Escape")

    card.get_by_role("link", name="Approve", exact=True).click()  # three clicks with a preset
    dialog.get_by_role("button", name="Evidence checked").click()
    dialog.get_by_role("button", name="Approve").click()
    page.wait_for_url("**/approvals/?answered=*")
    expect(page.locator("#live")).to_contain_text("Nothing to approve")


# The times of the requests that are over: [start, end] in milliseconds, the first first.
POD_REQUESTS = """performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/pods/"))
  .map(({ startTime, responseEnd }) => [startTime, responseEnd])"""


def test_cards_ask_for_their_pods_one_after_the_other(open_page: Open, ask: Ask) -> None:
    ask(4)
    page = open_page("/approvals/")  # a refused request would be an error of its console
    cards = page.locator("article.question")
    expect(cards).to_have_count(4)
    for card in cards.all():
        expect(card).to_contain_text("evicted")
    spans = page.evaluate(POD_REQUESTS)
    assert len(spans) == 4
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_key_answers_the_request_in_focus_and_no_other(open_page: Open, product: Product, ask: Ask) -> None:
    [asked] = ask(1).values()
    page = open_page("/approvals/")
    settled(page)
    dialog = page.get_by_role("dialog")
    page.locator(".head .actions a").first.focus()  # in no request
    page.keyboard.press("d")
    page.keyboard.press("?")  # keys are handled in order: the one before has opened nothing
    expect(page.locator("#help-dialog")).to_be_visible()
    expect(dialog).to_have_count(1)
    page.keyboard.press("Escape")

    page.evaluate("document.activeElement.blur()")
    # As a link is between a swap and the time at which htmx binds it: nothing listens to its click.
    page.evaluate("document.querySelectorAll('[data-answer]').forEach((one) => one.replaceWith(one.cloneNode(true)))")
    page.keyboard.press("d")
    expect(dialog).to_contain_text("needs approval")
    expect(page).to_have_url(re.compile("/approvals/$"))

    page.goto(f"{product.url}/rescues/{asked}/approve/")
    expect(page.get_by_label("Reason")).to_be_focused()


def test_rows_stay_under_the_pointer_and_new_ones_are_announced(
    open_page: Open, product: Product, take_node: TakeNode
) -> None:
    page, node = open_page("/incidents/?program=true"), take_node()
    settled(page)
    product.inject(node, 31)
    first = page.locator("#live tbody tr").first
    expect(first).to_contain_text(node)
    key = first.locator("a.row-link").get_attribute("id") or ""
    first.hover()
    product.inject(take_node(), 45)
    button = page.get_by_role("button", name="new")
    expect(button).to_be_visible()
    assert first.locator("a.row-link").get_attribute("id") == key
    button.click()
    expect(button).to_be_hidden()
    expect(first.locator("a.row-link")).not_to_have_attribute("id", key)
