"""Chat services: one JSON body each, and plain text, so that no name or reason can become a mention or markup.

Sources: Slack "Incoming webhooks" (Mattermost and Rocket.Chat take the same), Microsoft "Workflows webhooks" with an
Adaptive Card, DingTalk "custom robot" (signed by time), Feishu "custom bot" (signed likewise), WeCom "group robot".
The Chinese services answer 200 to everything and say in the body whether the message was accepted.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from kcover import reasons
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import webhook
from kcover_portal.notify.senders.message import Message, SendError

MAX_ANSWER_BYTES: Final = 4096
WECOM_BYTES: Final = 2048  # of a text; the other services accept ten times the length of any message here
BUSY: Final = frozenset({11232, 45009, 130101, 660026})  # the services' codes for "too many requests, retry later"


def send(channel: Channel, message: Message) -> reasons.Reason:
    """Posts the service's own body. Raises SendError."""
    url, body = BODIES[channel.kind](channel, message)
    # The services have their own signatures in the URL or the body; the portal's signature would be of no use to them.
    reply = webhook.post(url, body, secret="", key=message.key, most=MAX_ANSWER_BYTES)
    _read(reply.data[:MAX_ANSWER_BYTES], host=urlsplit(channel.url).hostname or "")
    return reasons.of("answered", status=str(reply.status))


def _read(data: bytes, *, host: str) -> None:
    """Raises SendError if the body says that the message was not accepted."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return  # Slack answers "ok", Teams answers nothing
    if not isinstance(answer, dict):
        return
    code = next((answer[name] for name in ("errcode", "code", "StatusCode") if isinstance(answer.get(name), int)), 0)
    if code:
        message = str(answer.get("errmsg") or answer.get("msg") or answer.get("StatusMessage") or "")
        rejected = reasons.of("service_rejected", host=host, code=str(code), text=message[:200])
        raise SendError(rejected, later=code in BUSY)


def _slack(channel: Channel, message: Message) -> tuple[str, dict[str, Any]]:
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return channel.url, {"text": text}


def _teams(channel: Channel, message: Message) -> tuple[str, dict[str, Any]]:
    def block(text: str, **style: str) -> dict[str, Any]:
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}

    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [block(message.subject, weight="Bolder"), *(block(line) for line in message.lines)],
        "actions": [{"type": "Action.OpenUrl", "title": "kcover portal", "url": message.link}] if message.link else [],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return channel.url, {"type": "message", "attachments": [attachment]}


def _dingtalk(channel: Channel, message: Message) -> tuple[str, dict[str, Any]]:
    url = channel.url
    if channel.secret:
        moment = str(int(time.time() * 1000))
        sign = _hmac(channel.secret, f"{moment}\n{channel.secret}")
        url += f"{'&' if '?' in url else '?'}timestamp={moment}&sign={quote_plus(sign)}"
    return url, {"msgtype": "text", "text": {"content": message.text}}


def _feishu(channel: Channel, message: Message) -> tuple[str, dict[str, Any]]:
    rows: list[list[dict[str, str]]] = [[{"tag": "text", "text": line}] for line in message.lines]
    if message.link:
        rows.append([{"tag": "a", "text": message.link, "href": message.link}])
    content = {"post": {"zh_cn": {"title": message.subject, "content": rows}}}
    body: dict[str, Any] = {"msg_type": "post", "content": content}
    if channel.secret:
        moment = str(int(time.time()))
        body |= {"timestamp": moment, "sign": _hmac(f"{moment}\n{channel.secret}", "")}
    return channel.url, body


def _wecom(channel: Channel, message: Message) -> tuple[str, dict[str, Any]]:
    text = message.text
    if len(text.encode()) > WECOM_BYTES:
        kept = text.encode()[: WECOM_BYTES - len(message.link.encode()) - 8].decode(errors="ignore")
        text = f"{kept}…\n{message.link}".rstrip()
    return channel.url, {"msgtype": "text", "text": {"content": text}}


def _hmac(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


BODIES: Mapping[str, Callable[[Channel, Message], tuple[str, dict[str, Any]]]] = {
    Channel.Kind.SLACK: _slack,
    Channel.Kind.TEAMS: _teams,
    Channel.Kind.DINGTALK: _dingtalk,
    Channel.Kind.FEISHU: _feishu,
    Channel.Kind.WECOM: _wecom,
}
