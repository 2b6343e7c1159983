"""Tables as ``kubectl get`` prints them.

Belongs here: the columns of each kind and how their cells are computed, after
``k8s.io/kubernetes/pkg/printers/internalversion``. Never here: HTTP, or which objects are shown.
"""
