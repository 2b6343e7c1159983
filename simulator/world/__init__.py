"""Everything behind the Kubernetes API: machines with GPUs, kubelets, controllers, agents, and their faults.

Belongs here: everything that changes objects on its own. It works on ``kubeapi.store.Store`` and on an
``agenda.Agenda``. The agenda's clock is an argument, so that a test can play an hour in milliseconds. Never here: HTTP
(that is ``kubeapi`` and ``control``), anything of the portal.
"""
