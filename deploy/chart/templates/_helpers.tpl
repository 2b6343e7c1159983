{{/* Names: of objects in the release's namespace, and of objects that other releases could see. */}}
{{- define "kcover.prefix" -}}
{{- default .Release.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "kcover.scoped" -}}
{{- $prefix := include "kcover.prefix" . -}}
{{- if eq .Release.Namespace (printf "%s-system" $prefix) }}{{ $prefix }}{{ else }}{{ .Release.Namespace }}-{{ $prefix }}{{ end -}}
{{- end }}

{{/* The selector of a process. Call it with (list . "web"). */}}
{{- define "kcover.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: kcover-portal, app.kubernetes.io/instance: {{ include "kcover.prefix" $root }}, app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "kcover.image" -}}
{{- $tag := default .root.Chart.AppVersion .image.tag -}}
{{ .image.repository }}:{{ $tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "kcover.secret" -}}
{{- default (printf "%s-portal" (include "kcover.prefix" .)) .Values.secret.name -}}
{{- end }}

{{/* "true" where the chart runs the store itself: in a trial, unless an existing store is named. */}}
{{- define "kcover.bundled.postgresql" -}}
{{- if and .Values.trial (not .Values.postgresql.existingSecret.name) (not .Values.agent.only) }}true{{ end -}}
{{- end }}
{{- define "kcover.bundled.redis" -}}
{{- if and .Values.trial (not .Values.redis.existingSecret.name) (not .Values.agent.only) }}true{{ end -}}
{{- end }}

{{- define "kcover.host" -}}
{{- if not (or .Values.host .Values.trial) }}{{ fail "host is not set: set it to the portal's DNS name, such as portal.example.com, or set trial=true" }}{{ end -}}
{{- .Values.host -}}
{{- end }}

{{/* The address for browsers, and the one for agents. A trial has no Ingress: its door is the Service of live. */}}
{{- define "kcover.publicUrl" -}}
{{- if include "kcover.host" . }}https://{{ .Values.host }}{{ else }}http://localhost:8000{{ end -}}
{{- end }}
{{- define "kcover.agentUrl" -}}
{{- if .Values.agent.url }}{{ .Values.agent.url }}
{{- else if .Values.agent.only }}{{ fail "agent.url is not set: set it to the portal's address, such as https://portal.example.com" }}
{{- else if .Values.host }}https://{{ .Values.host }}
{{- else }}{{ include "kcover.publicUrl" . | replace "localhost" (printf "%s-live.%s.svc" (include "kcover.prefix" .) .Release.Namespace) }}
{{- end }}
{{- end }}

{{- define "kcover.hosts" -}}
{{- $prefix := include "kcover.prefix" . -}}
{{ if include "kcover.host" . }}{{ .Values.host }}{{ else }}localhost,{{ $prefix }}-live.{{ .Release.Namespace }}.svc{{ end }},{{ $prefix }}-web.{{ .Release.Namespace }}.svc
{{- end }}

{{/* All settings of the portal's processes as YAML: those that the chart derives, then those of the values. */}}
{{- define "kcover.settings" -}}
{{- $prefix := include "kcover.prefix" . -}}
{{- $given := dict
  "KCOVER_PUBLIC_URL" (include "kcover.publicUrl" .)
  "KCOVER_ALLOWED_HOSTS" (include "kcover.hosts" .)
  "KCOVER_OUTGOING_HOSTS" "none"
  "KCOVER_MODE" "shadow"
  "KCOVER_SERVICE_ACCOUNTS" (printf "%s/%s-agent" .Release.Namespace $prefix)
  "KCOVER_DATABASE_URL_FILE" "/etc/kcover/database_url"
  "KCOVER_REDIS_URL_FILE" "/etc/kcover/redis_url"
  "KCOVER_SECRET_KEY_FILE" "/etc/kcover/secret_key"
  "KCOVER_SIGNING_KEY" "/etc/kcover/signing_key.pem"
  "KCOVER_ANCHOR" "none"
  "KCOVER_ENCRYPTION_KEY_FILE" "/etc/kcover/encryption_key" -}}
{{- if not .Values.host }}{{ $_ := set $given "KCOVER_WEB_URL" (printf "http://%s-web:8080" $prefix) }}{{ end -}}
{{- range .Values.secret.settings }}{{ $_ := set $given (printf "%s_FILE" .) (printf "/etc/kcover/%s" (. | trimPrefix "KCOVER_" | lower)) }}{{ end -}}
{{- if has "KCOVER_SECRET_KEYS" .Values.secret.settings }}{{ $_ := unset $given "KCOVER_SECRET_KEY_FILE" }}{{ end -}}
{{- if .Values.settings.KCOVER_ENCRYPTION_KEY_COMMAND }}{{ $_ := unset $given "KCOVER_ENCRYPTION_KEY_FILE" }}{{ end -}}
{{- include "kcover.checkNumbers" . -}}
{{- toYaml (mergeOverwrite $given .Values.settings) -}}
{{- end }}

{{/* Refuses a number that the portal would refuse: its pods would not start. Sprig reads one that begins with 0 as octal, the
     portal does not. */}}
{{- define "kcover.checkNumbers" -}}
{{- range $name, $limits := .Files.Get "files/numbers.json" | fromJson -}}
{{- with get $.Values.settings $name -}}
{{- $number := regexReplaceAll "^[+]?0*([0-9])" (trim .) "${1}" -}}
{{- if not (and (regexMatch "^[0-9]{1,9}$" $number) (ge (int64 $number) (int64 $limits.least)) (le (int64 $number) (int64 $limits.most))) -}}
{{- fail (printf "settings.%s is %q: write a number from %d to %d" $name . (int64 $limits.least) (int64 $limits.most)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What all pods of the portal share. Call it with (list . "web"). */}}
{{- define "kcover.pod" -}}
{{- $root := index . 0 -}}
{{- $process := index . 1 -}}
{{- $labels := include "kcover.labels" . -}}
{{- include "kcover.pullSecrets" $root }}
serviceAccountName: {{ include "kcover.prefix" $root }}-{{ $process }}
enableServiceLinks: false
priorityClassName: {{ default (printf "%s-portal" (include "kcover.scoped" $root)) $root.Values.priorityClass.name }}
securityContext:
  {{- include "kcover.podSecurity" (list $root $root.Values.podSecurityContext) | nindent 2 }}
{{- include "kcover.placement" $root }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: { {{- $labels -}} }}
tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 30}
  {{- with $root.Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
initContainers:
  - name: migrate
    image: {{ include "kcover.image" (dict "root" $root "image" $root.Values.image) }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [python, manage.py, migrate, --no-input]
    {{- include "kcover.container" $root | nindent 4 }}
    {{- with include "kcover.env" (list $root) }}
    {{- . | nindent 4 }}
    {{- end }}
    resources: {requests: {cpu: 50m, memory: 128Mi}, limits: {memory: 512Mi}}
    volumeMounts:
      {{- include "kcover.mounts" (list $root) | nindent 6 }}
volumes:
  {{- include "kcover.secretVolume" $root | nindent 2 }}
  {{- if include "kcover.hasEngineKey" . }}
  - name: engine
    secret: {secretName: {{ $root.Values.engineSecret.name }}, defaultMode: 0440}
  {{- end }}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
  {{- include "kcover.caVolume" $root | nindent 2 }}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* "true" with a CA of its own. */}}
{{- define "kcover.ca" -}}
{{- if and (.Values.ca).configMap (.Values.ca).secret }}{{ fail "ca.configMap and ca.secret are both set: name one of them" }}{{ end -}}
{{- if or (.Values.ca).configMap (.Values.ca).secret }}true{{ end -}}
{{- end }}

{{- define "kcover.caVolume" -}}
{{- if include "kcover.ca" . }}
- name: ca
  {{- with .Values.ca }}
  {{- if .configMap }}
  configMap: {name: {{ .configMap }}, items: [{key: {{ .key }}, path: ca.crt}]}
  {{- else }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440, items: [{key: {{ .key }}, path: ca.crt}]}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "kcover.pullSecrets" -}}
{{- $names := .Values.imagePullSecrets -}}
{{- with .Values.pullSecrets }}
{{- if and .create (not (and .name .imagePullSecretData)) }}{{ fail "pullSecrets.create needs pullSecrets.name and pullSecrets.imagePullSecretData, a Docker configuration in base64" }}{{ end -}}
{{- if .name }}{{ $names = append $names .name }}{{ end -}}
{{- end }}
{{- with $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The user of a pod, unless the platform chooses it. Call it with (list . values). */}}
{{- define "kcover.podSecurity" -}}
{{- $context := default dict (index . 1) -}}
{{- if ((index . 0).Values.openshift).enabled }}{{ $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
{{- toYaml (merge (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) $context) -}}
{{- end }}

{{/* The ConfigMap with the agent's settings file, if there is one. */}}
{{- define "kcover.agentConfig" -}}
{{- with .Values.agent.config }}
{{- if and .data .existingConfigMap }}{{ fail "agent.config.data and agent.config.existingConfigMap are both set: give one of them" }}{{ end -}}
{{- if .existingConfigMap }}{{ .existingConfigMap }}{{ else if .data }}{{ include "kcover.prefix" $ }}-agent-config{{ end -}}
{{- end -}}
{{- end }}

{{/* "true" unless it is false: values of an older chart do not have it. */}}
{{- define "kcover.hostNetwork" -}}
{{- if ne (toString .Values.agent.hostNetwork) "false" }}true{{ end -}}
{{- end }}

{{/* Where the agent serves /metrics and /healthz: HOST:PORT, empty for none. A file that the chart does not see may say something
     else only if settings say it, too. */}}
{{- define "kcover.agentListen" -}}
{{- $own := ternary "0.0.0.0:9412" "127.0.0.1:9412" (empty (include "kcover.hostNetwork" .)) -}}
{{- $listen := default (default $own ((.Values.agent.config).data).listen) .Values.agent.settings.KCOVER_AGENT_LISTEN -}}
{{- if ne $listen "none" }}{{ $listen }}{{ end -}}
{{- end }}

{{/* Annotations as lines; nothing without any. */}}
{{- define "kcover.annotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" for the processes that decrypt the engine's kubeconfigs. Call it with (list . "worker"). */}}
{{- define "kcover.hasEngineKey" -}}
{{- if and ((index . 0).Values.engineSecret).name (has (index . 1) (list "worker" "watch")) }}true{{ end -}}
{{- end }}

{{/* The variables of a process beside the ConfigMap, which an entry of env overrides: how it reaches clusters (worker and
     watch with the engine's key, web and live with fewer rights), the anchor of worker, the CA, and those of the values.
     Call it with (list . "worker"), for the init container with (list .). */}}
{{- define "kcover.env" -}}
{{- $root := index . 0 -}}
{{- $process := index (append . "") 1 -}}
{{- $env := list -}}
{{- if include "kcover.ca" $root }}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "PGSSLROOTCERT" }}{{ $env = append $env (dict "name" . "value" "/etc/kcover-ca/ca.crt") }}{{ end -}}
{{- end -}}
{{- if has $process (list "web" "live") }}{{ $env = append $env (dict "name" "KCOVER_CLUSTER_ACCESS" "value" "read") }}{{ end -}}
{{- if include "kcover.hasEngineKey" (list $root $process) }}{{ $env = append $env (dict "name" "KCOVER_ENGINE_KEY_FILE" "value" "/etc/kcover-engine/engine_key") }}{{ end -}}
{{- if and (eq $process "worker") $root.Values.anchor.claim }}{{ $env = append $env (dict "name" "KCOVER_ANCHOR" "value" "/var/lib/kcover/anchor/heads.jsonl") }}{{ end -}}
{{- if has $process (list "worker" "beat" "watch") }}{{ $env = append $env (dict "name" "KCOVER_HEARTBEAT_FILE" "value" "/tmp/heartbeat") }}{{ end -}}
{{- with concat $env (default list $root.Values.extraEnv) }}env: {{ toJson . }}{{ end -}}
{{- end }}

{{- define "kcover.mounts" -}}
{{- $root := index . 0 -}}
- {name: secret, mountPath: /etc/kcover, readOnly: true}
{{- if include "kcover.hasEngineKey" (append . "") }}
- {name: engine, mountPath: /etc/kcover-engine, readOnly: true}
{{- end }}
{{- if include "kcover.ca" $root }}
- {name: ca, mountPath: /etc/kcover-ca, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- with $root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kcover.container" -}}
envFrom: [{configMapRef: {name: {{ include "kcover.prefix" . }}-portal}}]
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* The chart's Secret as one folder. Existing stores' Secrets add their address under the portal's file name. */}}
{{- define "kcover.secretVolume" -}}
{{- if or .Values.postgresql.existingSecret.name .Values.redis.existingSecret.name }}
- name: secret
  projected:
    defaultMode: 0440
    sources:
      - secret: {name: {{ include "kcover.secret" . }}}
      {{- with .Values.postgresql.existingSecret }}
      {{- if .name }}
      - secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: database_url}]}
      {{- end }}
      {{- end }}
      {{- with .Values.redis.existingSecret }}
      {{- if .name }}
      - secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: redis_url}]}
      {{- end }}
      {{- end }}
{{- else }}
- name: secret
  secret: {secretName: {{ include "kcover.secret" . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Keeps the portal off nodes that it may drain and reboot. The agent's affinity is the opposite. */}}
{{- define "kcover.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if eq .Values.placement "required" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: nvidia.com/gpu.present, operator: NotIn, values: ["true"]}
            - {key: nvidia.com/gpu.product, operator: DoesNotExist}
            - {key: kcover.io/agent, operator: NotIn, values: ["true"]}
{{- else if eq .Values.placement "preferred" }}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            - {key: nvidia.com/gpu.present, operator: NotIn, values: ["true"]}
            - {key: nvidia.com/gpu.product, operator: DoesNotExist}
            - {key: kcover.io/agent, operator: NotIn, values: ["true"]}
{{- end }}
{{- end }}

{{/* "true" where a trial's PostgreSQL has a volume: as the StatefulSet already has it, because that cannot change; else where
     a StorageClass is named or the cluster has a default one, which only then is asked for: not everybody may list them. Without
     an API server to ask, there is one. */}}
{{- define "kcover.persistent" -}}
{{- $storage := .Values.postgresql.storage -}}
{{- $classes := dict -}}
{{- if and $storage.persistent (not $storage.className) (.Capabilities.APIVersions.Has "storage.k8s.io/v1") }}{{ $classes = lookup "storage.k8s.io/v1" "StorageClass" "" "" }}{{ end -}}
{{- $found := not (hasKey $classes "items") -}}
{{- range $classes.items }}{{ if eq "true" (dig "annotations" "storageclass.kubernetes.io/is-default-class" "" .metadata) }}{{ $found = true }}{{ end }}{{ end -}}
{{- $old := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-postgresql" (include "kcover.prefix" .)) -}}
{{- if $old }}{{ $found = not (empty $old.spec.volumeClaimTemplates) }}{{ end -}}
{{- if and $storage.persistent (or $storage.className $found) }}true{{ end -}}
{{- end }}
