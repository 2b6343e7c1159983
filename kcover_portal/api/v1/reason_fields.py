"""Reasons in REST responses: an English sentence, and the code with its parameters."""

from typing import Any

from rest_framework import serializers

from kcover import reasons


class SentenceField(serializers.CharField):
    """The English sentence of a reason in a JSON column; "" without one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> str:  # the column's JSON: {"code", "params"} or {}
        return reasons.text(value)


class ReasonSerializer(serializers.Serializer[reasons.Reason]):
    """A reason as data; a parameter that is a reason itself has the same shape."""

    code = serializers.CharField()
    params = serializers.DictField()

    def to_representation(self, instance: reasons.Reason) -> dict[str, Any]:
        return instance.to_json()
