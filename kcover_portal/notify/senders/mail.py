"""E-mail through the server that the environment configures. A repetition carries the same Message-ID."""

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from kcover import reasons
from kcover_portal.lib import outgoing_mail
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders.message import Message, SendError


def send(channel: Channel, message: Message) -> reasons.Reason:
    """One mail to all recipients. Raises SendError; a mail that only some recipients refuse counts as sent."""
    mail = EmailMessage(
        subject=f"[kcover] {message.subject}",
        body="\n".join([*message.lines, *(["", message.link] if message.link else [])]) + "\n",
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=channel.recipients,
        headers={"Message-ID": f"<{message.key}@kcover-portal>", "Auto-Submitted": "auto-generated"},
        connection=get_connection(),
    )
    try:
        outgoing_mail.send(mail)
    except outgoing_mail.MailRefused as error:
        raise SendError(error.reason, later=error.later) from error
    return reasons.of("mail_accepted")
