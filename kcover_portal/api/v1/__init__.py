"""REST, version 1: one module per resource, with its serializers and views."""
