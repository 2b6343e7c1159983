"""The port's verbs over HTTP, one module for each family of objects: paths, queries, bodies, and what an answer means.

``live.LiveCluster`` is all of them together. How a request travels is ``http``'s; how JSON is read is ``wire``'s.
"""
