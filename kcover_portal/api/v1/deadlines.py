"""Times to collect preflight reports in bodies."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kcover import preflight
from kcover_portal.lib.errors import FieldError


@extend_schema_field(OpenApiTypes.STR)
class DeadlineField(serializers.Field[int, Any, Any, Any]):
    """Reads seconds from a number or from text such as 30m."""

    def to_internal_value(self, data: Any) -> int:
        """Returns seconds. Raises FieldError."""
        try:
            return int(preflight.parse_deadline(data).total_seconds())
        except preflight.DeadlineInvalid as error:
            raise FieldError(self.field_name or "", error.reason) from error

    def to_representation(self, value: Any) -> int:
        return int(value)
