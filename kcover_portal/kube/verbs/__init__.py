"""The port's verbs over HTTP, one module per family of objects: paths, queries, bodies and the meaning of responses.

``live.LiveCluster`` combines them. ``http`` sends the requests; ``wire`` decodes the JSON.
"""
