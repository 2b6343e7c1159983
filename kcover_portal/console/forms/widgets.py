"""The inputs that the forms of the console share."""

from django import forms

LINE = {"class": "form-control", "autocomplete": "off", "spellcheck": "false"}


def select() -> forms.Select:
    return forms.Select(attrs={"class": "form-select"})


def line(**more: str) -> forms.TextInput:
    """A line of text that the browser neither completes nor corrects. ``more``: further attributes."""
    return forms.TextInput(attrs={**LINE, **more})


def number() -> forms.NumberInput:
    return forms.NumberInput(attrs={"class": "form-control"})


def checkbox() -> forms.CheckboxInput:
    return forms.CheckboxInput(attrs={"class": "form-check-input"})


def checkboxes() -> forms.CheckboxSelectMultiple:
    """Any of a list, as checkboxes."""
    return forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"})


def new_password() -> forms.PasswordInput:
    """A password that is being chosen."""
    return forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"})


class SecretText(forms.Textarea):
    """A text area whose value is never rendered."""

    def format_value(self, _value: object) -> str:
        return ""
