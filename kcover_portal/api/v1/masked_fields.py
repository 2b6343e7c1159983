"""Fields in which the parts of addresses that may be keys are masked."""

from typing import Any

from rest_framework import serializers

from kcover.values import masked_addresses


class MaskedTextField(serializers.CharField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> str:
        return masked_addresses.mask_text(str(value))


class MaskedField(serializers.JSONField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, **kwargs)

    def to_representation(self, value: Any) -> Any:
        return masked_addresses.mask(value)
