"""The request to each service, and the handling of its answer; mail goes through a real SMTP server."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from email import message_from_bytes, policy
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kcover import reasons
from kcover_portal.notify import senders
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import chat
from kcover_portal.notify.senders.message import Message, SendError
from tests.portal.notify.mailbox import Mailbox, running
from tests.portal.notify.receiver import Receiver

MESSAGE = Message(
    key="5d4c",
    subject="Rescue failed: xid 79 · gpu-1 · c1",
    lines=("Rescue failed: xid 79 · gpu-1 · c1 – <!channel> & more", "and 2 more"),
    link="https://portal.example",
    document={"version": 1},
)


def channel(kind: str, url: str = "", **more: Any) -> Channel:
    return Channel(name="x", kind=kind, url=url, **more)


def test_slack_gets_a_text_in_which_nothing_is_a_mention(receiver: Receiver):
    assert senders.send(channel("slack", receiver.url), MESSAGE) == reasons.of("answered", status="200")
    (body,) = receiver.asked
    assert body == {
        "text": "Rescue failed: xid 79 · gpu-1 · c1\n"
        "Rescue failed: xid 79 · gpu-1 · c1 – &lt;!channel&gt; &amp; more\nand 2 more\nhttps://portal.example"
    }


def test_teams_gets_a_card_of_plain_runs(receiver: Receiver):
    receiver.answer, receiver.statuses = "", [202]
    assert senders.send(channel("teams", receiver.url), MESSAGE) == reasons.of("answered", status="202")
    card = receiver.asked[0]["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["body"][1]["inlines"][0]["text"] == MESSAGE.lines[0]
    assert card["actions"][0]["url"] == "https://portal.example"


def test_dingtalk_is_signed_by_time_in_the_address(receiver: Receiver):
    receiver.answer = '{"errcode":0,"errmsg":"ok"}'
    senders.send(channel("dingtalk", f"{receiver.url}?access_token=t", secret="SECabc"), MESSAGE)
    asked = parse_qs(urlsplit(receiver.paths[0]).query)
    text = f"{asked['timestamp'][0]}\nSECabc"
    sign = base64.b64encode(hmac.new(b"SECabc", text.encode(), hashlib.sha256).digest()).decode()
    assert (asked["access_token"], asked["sign"]) == (["t"], [sign])
    assert receiver.asked[0] == {"msgtype": "text", "text": {"content": MESSAGE.text}}


def test_feishu_is_signed_by_time_in_the_body(receiver: Receiver):
    receiver.answer = '{"code":0,"msg":"success"}'
    senders.send(channel("feishu", receiver.url, secret="abc"), MESSAGE)
    (body,) = receiver.asked
    sign = base64.b64encode(hmac.new(f"{body['timestamp']}\nabc".encode(), b"", hashlib.sha256).digest()).decode()
    assert body["sign"] == sign
    rows = body["content"]["post"]["zh_cn"]["content"]
    assert rows[0] == [{"tag": "text", "text": MESSAGE.lines[0]}]
    assert rows[-1][0]["href"] == "https://portal.example"


def test_wecom_gets_a_text_within_its_bounds(receiver: Receiver):
    receiver.answer = '{"errcode":0,"errmsg":"ok"}'
    long = Message(key="k", subject="故障", lines=("节点故障" * 300,), link="https://portal.example")
    senders.send(channel("wecom", receiver.url), long)
    content = receiver.asked[0]["text"]["content"]
    assert len(content.encode()) <= chat.WECOM_BYTES
    assert content.startswith("故障\n节点故障")
    assert content.endswith("…\nhttps://portal.example")


@pytest.mark.parametrize(
    ("kind", "answer", "said", "later"),
    [
        (
            "dingtalk",
            '{"errcode":310000,"errmsg":"sign not match"}',
            "310000 sign not match",
            False,
        ),
        ("dingtalk", '{"errcode":130101,"errmsg":"send too fast"}', "130101 send too fast", True),
        ("feishu", '{"code":19021,"msg":"sign match fail"}', "19021 sign match fail", False),
        ("feishu", '{"code":11232,"msg":"frequency limited"}', "11232 frequency limited", True),
        (
            "wecom",
            '{"errcode":93000,"errmsg":"invalid webhook url"}',
            "93000 invalid webhook url",
            False,
        ),
        (
            "wecom",
            '{"errcode":45009,"errmsg":"api freq out of limit"}',
            "45009 api freq out of limit",
            True,
        ),
    ],
)
def test_a_refusal_in_the_body_of_a_200_is_one(receiver: Receiver, kind: str, answer: str, said: str, later: bool):
    receiver.answer = answer
    with pytest.raises(SendError) as refusal:
        senders.send(channel(kind, receiver.url), MESSAGE)
    assert (str(refusal.value), refusal.value.later) == (f"127.0.0.1 rejected the message: {said}", later)


@pytest.mark.parametrize("answer", ["ok", "", "[1]", "{", '{"ok": true}', "[" * 5000, '{"code": "x"}'])
def test_an_empty_response_is_no_refusal(receiver: Receiver, answer: str):
    receiver.answer = answer
    assert senders.send(channel("slack", receiver.url), MESSAGE) == reasons.of("answered", status="200")


def test_no_error_shows_the_secret_address(receiver: Receiver):
    receiver.statuses = [403]
    with pytest.raises(SendError) as refusal:
        senders.send(channel("slack", receiver.url), MESSAGE)
    assert "hush" not in str(refusal.value)
    receiver.stop()
    with pytest.raises(SendError) as refusal:
        senders.send(channel("slack", receiver.url), MESSAGE)
    assert "hush" not in str(refusal.value)
    assert refusal.value.later


# --- mail


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    with running(settings) as server:
        yield server


def test_a_mail_has_a_name_that_a_repetition_keeps(mailbox: Mailbox):
    row = channel("mail", recipients=["anna@example.com", "bo@example.com"])
    for _ in range(2):
        assert senders.send(row, MESSAGE) == reasons.of("mail_accepted")
    first, second = (message_from_bytes(one, policy=policy.default) for one in mailbox.got)
    assert first["Message-ID"] == second["Message-ID"] == "<5d4c@kcover-portal>"
    assert first["Subject"].strip() == "[kcover] Rescue failed: xid 79 · gpu-1 · c1"
    assert first["To"] == "anna@example.com, bo@example.com"
    assert first["Auto-Submitted"] == "auto-generated"
    assert first.get_content().replace("\r\n", "\n").splitlines() == [*MESSAGE.lines, "", MESSAGE.link]
    assert len(mailbox.recipients) == 4


@pytest.mark.parametrize(("answer", "later"), [("550 no such box", False), ("450 busy", True)])
def test_a_server_that_refuses_everybody(mailbox: Mailbox, answer: str, later: bool):
    mailbox.refuse = answer
    with pytest.raises(SendError) as refusal:
        senders.send(channel("mail", recipients=["anna@example.com"]), MESSAGE)
    assert (str(refusal.value), refusal.value.later) == ("127.0.0.1 rejected every recipient.", later)


def test_a_mail_server_that_does_not_answer_is_retried_later(mailbox: Mailbox, settings: Any):
    settings.EMAIL_PORT = 1
    with pytest.raises(SendError, match="does not answer") as refusal:
        senders.send(channel("mail", recipients=["anna@example.com"]), MESSAGE)
    assert refusal.value.later


def test_without_a_mail_server_the_error_names_the_setting(settings: Any):
    settings.EMAIL_HOST = ""
    with pytest.raises(SendError, match="KCOVER_MAIL_URL is not set"):
        senders.send(channel("mail", recipients=["anna@example.com"]), MESSAGE)
