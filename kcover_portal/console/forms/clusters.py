"""The form that adds a cluster."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.console.forms import widgets
from kcover_portal.fleet.services import kubeconfig, registry
from kcover_portal.lib import localization
from kcover_portal.runtime.models import Mode

BY_KUBECONFIG, INSIDE = "kubeconfig", "in-cluster"


class NewCluster(forms.Form):
    """The name, the access and the mode of a new cluster. A page never shows the kubeconfig again."""

    name = forms.SlugField(label=gettext_lazy("Name"), max_length=100, widget=widgets.line())
    access = forms.ChoiceField(
        choices=[
            (BY_KUBECONFIG, gettext_lazy("With a kubeconfig")),
            (INSIDE, gettext_lazy("The cluster that the portal runs in")),
        ],
        initial=BY_KUBECONFIG,
        label=gettext_lazy("Access"),
        widget=widgets.select(),
    )
    kubeconfig = forms.CharField(
        label=gettext_lazy("Kubeconfig"),
        required=False,
        max_length=kubeconfig.MAX_BYTES,
        strip=False,
        widget=widgets.SecretText(
            attrs={"class": "form-control mono", "rows": 10, "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text=gettext_lazy(
            "The output of kubectl config view --minify --flatten. It is stored encrypted when you add the cluster."
        ),
    )
    context = forms.CharField(
        label=gettext_lazy("Context"),
        required=False,
        max_length=253,
        widget=widgets.line(),
        help_text=gettext_lazy("Leave blank for the current context."),
    )
    mode = forms.ChoiceField(
        choices=registry.FIRST_MODES,
        initial=Mode.SHADOW,
        label=gettext_lazy("Mode"),
        widget=widgets.select(),
        help_text=gettext_lazy("In shadow the portal decides and records, and changes nothing in the cluster."),
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.read: kubeconfig.Kubeconfig | None = None
        if not registry.runs_inside():
            del self.fields["access"]

    @property
    def inside(self) -> bool:
        """Returns whether the cluster is the one that the portal runs in."""
        return self.cleaned_data.get("access") == INSIDE

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if taken := registry.name_taken(name):
            raise forms.ValidationError(localization.say(taken))
        return name

    def clean(self) -> dict[str, Any]:
        """Reads the kubeconfig."""
        given = super().clean() or self.cleaned_data
        if self.inside:
            if objection := registry.inside_objection():
                self.add_error("access", localization.say(objection))
            return given
        try:
            self.read = kubeconfig.read_pasted(given.get("kubeconfig", ""), context=given.get("context", ""))
        except kubeconfig.KubeconfigInvalid as error:
            self.add_error("kubeconfig", localization.say(error.reason))
        return given

    def row(self) -> dict[str, Any]:
        """Returns the fields of the new row. Call it only if the form is valid."""
        text, context = (self.read.text, self.read.context) if self.read is not None else ("", "")
        return {
            "in_cluster": self.inside,
            "kubeconfig": text,
            "context": context,
            "mode": self.cleaned_data["mode"],
        }
