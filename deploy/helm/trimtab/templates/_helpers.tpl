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

{{/* The settings, with the kubeconfigs of the accounts that this release makes. */}}
{{- define "trimtab.settings" -}}
{{- $found := deepCopy .Values.settings -}}
{{- if .Values.applier.create -}}
{{- $_ := set $found "apply_kubernetes" (merge (dict "kubeconfig" "/etc/trimtab/applier.kubeconfig") ($found.apply_kubernetes | default dict)) -}}
{{- end -}}
{{- if .Values.submitter.create -}}
{{- $_ := set $found "submit" (merge (dict "kubeconfig" "/etc/trimtab/submitter.kubeconfig" "namespace" .Values.submitter.namespace) ($found.submit | default dict)) -}}
{{- end -}}
{{- range $section := keys $found | sortAlpha }}
[{{ $section }}]
{{- $fields := get $found $section }}
{{- range $field := keys $fields | sortAlpha }}
{{ $field }} = {{ include "trimtab.toml" (get $fields $field) }}
{{- end }}
{{ end }}
{{- end }}

{{/* A kubeconfig that signs in with a mounted token. */}}
{{- define "trimtab.kubeconfig" -}}
apiVersion: v1
kind: Config
current-context: cluster
clusters:
  - name: cluster
    cluster:
      server: https://kubernetes.default.svc
      certificate-authority: /var/run/secrets/trimtab/{{ . }}/ca.crt
users:
  - name: {{ . }}
    user:
      tokenFile: /var/run/secrets/trimtab/{{ . }}/token
contexts:
  - name: cluster
    context: {cluster: cluster, user: {{ . }}}
{{- end }}

{{/* The pod of the Deployment and of the CronJobs; `args` is what trimtab is asked to do. */}}
{{- define "trimtab.pod" -}}
{{- $ := .root -}}
serviceAccountName: {{ include "trimtab.reader" $ }}
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
    {{- if or $.Values.secret.existing $.Values.secret.values }}
    envFrom:
      - secretRef: {name: {{ include "trimtab.secret" $ }}}
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
      {{- range $account := list "applier" "submitter" }}
      {{- if (get $.Values $account).create }}
      - {name: {{ $account }}, mountPath: /var/run/secrets/trimtab/{{ $account }}, readOnly: true}
      {{- end }}
      {{- end }}
volumes:
  - name: settings
    configMap: {name: {{ include "trimtab.name" $ }}}
  - name: state
    {{- if $.Values.persistence.enabled }}
    persistentVolumeClaim: {claimName: {{ $.Values.persistence.existingClaim | default (include "trimtab.name" $) }}}
    {{- else }}
    emptyDir: {}
    {{- end }}
  - {name: cache, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
  {{- range $account := list "applier" "submitter" }}
  {{- if (get $.Values $account).create }}
  - name: {{ $account }}
    secret: {secretName: {{ include (printf "trimtab.%s" $account) $ }}-token, defaultMode: 0440}
  {{- end }}
  {{- end }}
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
