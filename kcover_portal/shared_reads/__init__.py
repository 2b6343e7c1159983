"""Shared reads: data that the REST API, the console and metrics all show.

Belongs here: FilterSets and annotations that cross apps, who may see which rows, and what needs attention across all
apps. Never here: HTTP, templates, serializers (api, console), writes, or rules of a single app (its own queries).
"""
