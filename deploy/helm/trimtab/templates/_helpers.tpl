{{- define "trimtab.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "trimtab.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trimtab.labels" -}}
{{ include "trimtab.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "trimtab.reader" -}}{{ .Values.reader.name | default (printf "%s-reader" (include "trimtab.name" .)) }}{{- end }}
{{- define "trimtab.applier" -}}{{ .Values.applier.name | default (printf "%s-applier" (include "trimtab.name" .)) }}{{- end }}
{{- define "trimtab.submitter" -}}{{ .Values.submitter.name | default (printf "%s-submitter" (include "trimtab.name" .)) }}{{- end }}
{{- define "trimtab.secret" -}}{{ .Values.secret.existing | default (printf "%s-secret" (include "trimtab.name" .)) }}{{- end }}

{{/* A value as TOML: text, numbers and truth values as in JSON, lists, and tables within them. */}}
{{- define "trimtab.toml" -}}
{{- if kindIs "slice" . -}}
[{{ range $at, $one := . }}{{ if $at }}, {{ end }}{{ include "trimtab.toml" $one }}{{ end }}]
{{- else if kindIs "map" . -}}
{ {{- range $at, $key := keys . | sortAlpha }}{{ if $at }}, {{ end }}{{ $key }} = {{ include "trimtab.toml" (get $ $key) }}{{ end -}} }
{{- else -}}{{ toJson . }}{{- end -}}
{{- end }}

{{/* Whether each account has a pod of its own: as soon as one of them may write. */}}
{{- define "trimtab.apart" -}}
{{- if or .Values.applier.create .Values.submitter.create -}}
{{- $url := get (.Values.settings.store | default dict) "url" | default "" -}}
{{- if eq .Values.mode "cron" -}}
{{- fail "mode cron only reads: applier.create and submitter.create need mode serve" -}}
{{- end -}}
{{- if not (or (hasPrefix "postgresql" $url) .Values.secret.existing (hasKey .Values.secret.values "TRIMTAB_STORE_URL")) -}}
{{- fail "applier.create and submitter.create give each account a pod of its own, and pods share a PostgreSQL store: set settings.store.url to postgresql+psycopg://USER@HOST/trimtab, or TRIMTAB_STORE_URL in secret (docs/scaling-out.md)" -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{/* The settings. Every pod is its own account in the cluster, so no kubeconfig is named. */}}
{{- define "trimtab.settings" -}}
{{- $found := deepCopy .Values.settings -}}
{{- if .Values.submitter.create -}}
{{- $_ := set $found "submit" (merge (dict "namespace" .Values.submitter.namespace) ($found.submit | default dict)) -}}
{{- end -}}
{{- range $section := keys $found | sortAlpha }}
[{{ $section }}]
{{- $fields := get $found $section }}
{{- range $field := keys $fields | sortAlpha }}
{{ $field }} = {{ include "trimtab.toml" (get $fields $field) }}
{{- end }}
{{ end }}
{{- end }}

{{/* The pod of the Deployments and of the CronJobs: `args` is what trimtab is asked to do, `account`
who it is in the cluster (reader without), `env` adds variables, `secret` names a Secret with more of
them, `scratch` leaves the volume to another pod. */}}
{{- define "trimtab.pod" -}}
{{- $ := .root -}}
serviceAccountName: {{ include (printf "trimtab.%s" (.account | default "reader")) $ }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: trimtab
    image: "{{ $.Values.image.repository }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}"
    imagePullPolicy: {{ $.Values.image.pullPolicy }}
    command: [trimtab]
    args: {{- toYaml (concat (list "--settings" "/etc/trimtab/trimtab.toml") .args) | nindent 6 }}
    env:
      - {name: HOME, value: /var/lib/trimtab}
      - {name: XDG_CACHE_HOME, value: /var/cache/trimtab}
      - {name: MPLCONFIGDIR, value: /var/cache/trimtab/matplotlib}
      {{- range $name, $value := .env }}
      - {name: {{ $name }}, value: {{ $value | quote }}}
      {{- end }}
    {{- if or $.Values.secret.existing $.Values.secret.values .secret }}
    envFrom:
      {{- if or $.Values.secret.existing $.Values.secret.values }}
      - secretRef: {name: {{ include "trimtab.secret" $ }}}
      {{- end }}
      {{- with .secret }}
      - secretRef: {name: {{ . }}}
      {{- end }}
    {{- end }}
    {{- with .ports }}
    ports: {{- toYaml . | nindent 6 }}
    livenessProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 20
      timeoutSeconds: 10
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 10
      timeoutSeconds: 10
    # The first start compiles kernels and replays the log of the store.
    startupProbe:
      httpGet: {path: /livez, port: http}
      periodSeconds: 5
      failureThreshold: 60
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    resources: {{- toYaml $.Values.resources | nindent 6 }}
    volumeMounts:
      - {name: settings, mountPath: /etc/trimtab, readOnly: true}
      - {name: state, mountPath: /var/lib/trimtab}
      - {name: cache, mountPath: /var/cache/trimtab}
      - {name: tmp, mountPath: /tmp}
volumes:
  - name: settings
    configMap: {name: {{ include "trimtab.name" $ }}}
  - name: state
    {{- if and $.Values.persistence.enabled (not .scratch) }}
    persistentVolumeClaim: {claimName: {{ $.Values.persistence.existingClaim | default (include "trimtab.name" $) }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - {name: cache, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
