"""One suite for the Kubernetes port, run against the fake, the simulator over HTTP, and a real kube-apiserver.

The last one runs where KUBEBUILDER_ASSETS names a folder with ``etcd`` and ``kube-apiserver``.
There are no controllers and no kubelet behind it: the rig plays them. Both HTTP servers let the portal in with exactly
the rights in deploy/rbac.yaml.
"""
