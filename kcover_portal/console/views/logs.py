"""Analysis of a pasted or uploaded log; nothing is stored."""

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _, gettext_lazy
from django.views.decorators.http import require_http_methods

from kcover_portal.accounts import queries as accounts
from kcover_portal.console.access import Request, place, signed_in
from kcover_portal.console.reads import logs
from kcover_portal.fleet.models import Node
from kcover_portal.runtime.services import concurrency_limits

MAX_TEXT_CHARACTERS = 2_000_000  # pasted; Django takes 2.5 MB of a form
MAX_FILE_BYTES = 32 * 1024 * 1024


class Log(forms.Form):
    """A log as text or file, and the node whose labels the rules are matched with."""

    text = forms.CharField(
        label=gettext_lazy("Kernel log"),
        required=False,
        max_length=MAX_TEXT_CHARACTERS,
        strip=False,
        widget=forms.Textarea(
            attrs={"class": "form-control mono", "rows": 10, "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text=gettext_lazy("Output of dmesg, journalctl -k or nvidia-bug-report. Line prefixes are ignored."),
    )
    file = forms.FileField(
        label=gettext_lazy("Or upload a file"),
        required=False,
        widget=forms.ClearableFileInput(attrs={"class": "form-control"}),
        help_text=gettext_lazy("Up to 32 MiB. Non-text bytes are ignored."),
    )
    node = forms.CharField(
        label=gettext_lazy("Node (for rules that match labels)"),
        required=False,
        max_length=253,
        widget=forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}),
    )

    def clean(self) -> dict[str, object]:
        """Reject an empty form and files over the limit."""
        given = super().clean() or self.cleaned_data
        file = given.get("file")
        if not given.get("text") and file is None and not self.errors:
            raise forms.ValidationError(_("Paste a log or choose a file."))
        if file is not None and file.size > MAX_FILE_BYTES:
            self.add_error("file", _("The file is larger than 32 MiB. Cut it to the relevant hours."))
        return given


@require_http_methods(["GET", "POST"])
@signed_in
def read(request: Request) -> HttpResponse:
    """The form, followed by the analysis."""
    form = Log(request.POST, request.FILES) if request.method == "POST" else Log()
    context: dict[str, object] = {"form": form}
    if form.is_bound and form.is_valid():
        node = _node(request, form.cleaned_data["node"])
        if form.cleaned_data["node"] and node is None:
            form.add_error("node", _("No node with this name."))
        else:
            file = form.cleaned_data["file"]
            data = file.read() if file is not None else form.cleaned_data["text"].encode(errors="backslashreplace")
            with place(request, concurrency_limits.LOGS):
                seen, left_out, is_cut = logs.read(data)
                verdicts = logs.judged(seen, node.labels if node else {})
            context |= {
                "node": node,
                "verdicts": verdicts,
                "left_out": left_out,
                "most": logs.MAX_LINES if is_cut else None,
                "bytes": len(data),
            }
    return render(request, "console/pages/read_log.html", context, status=422 if form.errors else 200)


def _node(request: Request, name: str) -> Node | None:
    rows = accounts.visible(request.user, Node.objects.filter(name=name.strip()), node="")
    return rows.select_related("cluster").order_by("gone_at", "pk").first() if name else None
