{{/* Rules of the ClusterRoles of the worker and of a kubeconfig's account. The port of the API client uses exactly these
     (tests/contract/test_features.py). A feature that is off takes its rules away. */}}

{{/* Kinds of training jobs, with these verbs. Call it with (list . "get, list"). */}}
{{- define "kcover.rules.jobKinds" -}}
{{- $verbs := index . 1 -}}
{{- $jobs := (index . 0).Values.features.jobs -}}
{{- if $jobs.kubeflow }}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, mpijobs, mxjobs, xgboostjobs, paddlejobs]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.batch }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.leaderWorkerSet }}
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.jobSet }}
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.trainer }}
- apiGroups: [trainer.kubeflow.org]
  resources: [trainjobs]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.ray }}
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs]
  verbs: [{{ $verbs }}]
{{- end }}
{{- if $jobs.volcano }}
- apiGroups: [batch.volcano.sh]
  resources: [jobs]
  verbs: [{{ $verbs }}]
{{- end }}
{{- end }}

{{/* StatefulSets also belong to the cluster itself, and whoever may change one may run any pod: they are only read. */}}
{{- define "kcover.rules.statefulSets" -}}
{{- if .Values.features.jobs.statefulSet }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list]
{{- end }}
{{- end }}

{{/* The rights to read jobs, and those to act on pods and jobs unless they are limited to some namespaces. */}}
{{- define "kcover.rules.jobs" -}}
{{- $acts := and .Values.features.actions (not .Values.namespaces.work) -}}
{{- include "kcover.rules.jobKinds" (list . (ternary "get, list, patch" "get, list" (not (not $acts)))) }}
{{- include "kcover.rules.statefulSets" . }}
{{- if $acts }}
{{- include "kcover.rules.commands" . }}
{{- include "kcover.rules.pods" . }}
{{- end }}
{{- end }}

{{- define "kcover.rules.commands" -}}
{{- if .Values.features.jobs.volcano }}
# Restarts and stops a Volcano job as a whole. Single deletions could leave its gang below minAvailable.
- apiGroups: [bus.volcano.sh]
  resources: [commands]
  verbs: [create]
{{- end }}
{{- end }}

{{- define "kcover.rules.pods" }}
# get: checks that a pod is still the same. delete: forced drains, and restarts of training jobs.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, delete]
# Drains evict pods, which respects disruption budgets.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}

{{/* A Role in each namespace of namespaces.work. Call it with (list . "worker"), the name of the account. */}}
{{- define "kcover.work" -}}
{{- $root := index . 0 -}}
{{- $account := index . 1 -}}
{{- if $root.Values.features.actions }}
{{- range $root.Values.namespaces.work }}
---
# What the portal may end and change, in this namespace.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "kcover.scoped" $root }}-{{ $account }}-work
  namespace: {{ . }}
rules:
  {{- include "kcover.rules.pods" $root | nindent 2 }}
  {{- include "kcover.rules.jobKinds" (list $root "patch") | nindent 2 }}
  {{- include "kcover.rules.commands" $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "kcover.scoped" $root }}-{{ $account }}-work
  namespace: {{ . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "kcover.scoped" $root }}-{{ $account }}-work
subjects:
  - kind: ServiceAccount
    name: {{ include "kcover.prefix" $root }}-{{ $account }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kcover.rules.objects" -}}
{{- if .Values.features.preflightReports }}
# kcover's preflight reports as objects.
- apiGroups: [kcover.io]
  resources: [preflightreports]
  verbs: [list]
{{- end }}
{{- if .Values.features.policyObjects }}
# Policies as objects: read, and whether each was accepted is written to its status.
- apiGroups: [kcover.io, rescue.ksyun.com]
  resources: [rescuepolicies, warmstandbypolicies]
  verbs: [list]
- apiGroups: [kcover.io, rescue.ksyun.com]
  resources: [rescuepolicies/status, warmstandbypolicies/status]
  verbs: [patch]
{{- end }}
{{- end }}

{{- define "kcover.rules.machines" -}}
{{- if and .Values.features.actions .Values.features.nvsentinel }}
# create: asks NVSentinel's janitor for a reboot, or for the reset of one GPU. get: finds a request that an earlier call
# made. list: reads the result.
- apiGroups: [janitor.dgxc.nvidia.com]
  resources: [rebootnodes, gpuresets]
  verbs: [create, get, list]
{{- end }}
{{- if and .Values.features.actions .Values.features.clusterApi }}
# list: finds the Machine of a node by its identity. delete: has it replaced, with its uid as a precondition.
- apiGroups: [cluster.x-k8s.io]
  resources: [machines]
  verbs: [list, delete]
{{- end }}
{{- if and .Values.features.actions .Values.features.karpenter }}
- apiGroups: [karpenter.sh]
  resources: [nodeclaims]
  verbs: [list, delete]
{{- end }}
{{- if and .Values.features.actions .Values.features.deviceTaints }}
# The action quarantineDevice. list: finds the device in the slices of its node, and the portal's own rules.
- apiGroups: [resource.k8s.io]
  resources: [resourceslices]
  verbs: [list]
# create: taints one device. get: finds a rule that an earlier call made. delete: its own rules only, with their uid as a
# precondition.
- apiGroups: [resource.k8s.io]
  resources: [devicetaintrules]
  verbs: [create, get, list, delete]
{{- end }}
{{- end }}

{{- define "kcover.rules.jobNamespace" -}}
{{- if and .Values.features.actions .Values.features.rebootJob }}
# create: reboots a node whose agent cannot. get: reads the result. delete: withdraws the job of a cancelled rescue.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, get, delete]
{{- end }}
{{- if .Values.features.claimCheck }}
# The check pvc creates a claim of 100 MiB, waits until it is bound, and deletes it.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get, delete]
{{- end }}
{{- if .Values.features.ledgerLease }}
# The setting ledger_lease keeps signed heads of the audit log in the Lease kcover-ledger.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, get, patch]
{{- end }}
{{- end }}

{{/* What pages and previews read. */}}
{{- define "kcover.rules.pages" -}}
# Previews of drains, checks and orders list pods.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# Previews of drains name the disruption budgets that block them.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list]
# list: the page of jobs. get: the preview of an order about a job.
{{- include "kcover.rules.jobKinds" (list . "get, list") }}
{{- include "kcover.rules.statefulSets" . }}
{{- end }}
