"""What lives behind the Kubernetes API: machines with GPUs, kubelets, controllers, agents, and what befalls them.

Belongs here: everything that changes objects on its own. It works on ``kubeapi.store.Store`` and on an
``agenda.Agenda``, whose clock is an argument, so that an hour passes in a test as fast as its events can be played.
Never here: HTTP (that is ``kubeapi`` and ``control``), anything of the portal.
"""
