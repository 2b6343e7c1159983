"""Training workloads: whose pods are whose, what restarts a job, and whom its owners hear from.

Belongs here: what kcover's labels and annotations on a job mean, on top of ``kube``. Never here: calls (``kube``),
orders (``jobs``) and steps of rescues (``rescue``).
"""
