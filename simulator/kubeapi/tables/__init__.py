"""Tables as ``kubectl get`` prints them.

Belongs here: which columns a kind has and how a cell is worked out, by the columns of
``k8s.io/kubernetes/pkg/printers/internalversion``. Never here: HTTP, or which objects are shown.
"""
