"""REST, version 1: one module a resource, each with its serializers and views."""
