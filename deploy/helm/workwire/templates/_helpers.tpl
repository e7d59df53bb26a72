{{/* A file that kustomize uses too, for the namespace of the release. Takes a list: root, path, namespace in the file. */}}
{{- define "workwire.file" -}}
{{- $root := index . 0 }}
{{- $text := $root.Files.Get (index . 1) | required (printf "the chart lacks %s" (index . 1)) }}
---
{{ $text | replace (printf "namespace: %s\n" (index . 2)) (printf "namespace: %s\n" $root.Release.Namespace) | replace (printf ".%s.svc\n" (index . 2)) (printf ".%s.svc\n" $root.Release.Namespace) }}
{{- end }}

{{/* A part's definitions, which outlive the release. Takes a list: root, pattern of the file names. */}}
{{- define "workwire.crds" -}}
{{- $root := index . 0 }}
{{- if $root.Values.crds.install }}
{{- range $path, $_ := $root.Files.Glob "files/crds/*.yaml" }}
{{- if regexMatch (index $ 1) (base $path) }}
{{- $crd := $root.Files.Get $path | fromYaml }}
{{- $_ := set $crd.metadata.annotations "helm.sh/resource-policy" "keep" }}
---
{{ toYaml $crd }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "workwire.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: workwire
{{- end }}

{{/* An image by its digest, else by its tag. Takes a list: root, name. */}}
{{- define "workwire.image" -}}
{{- $name := index . 1 }}
{{- with (index . 0) }}
{{- $digest := get .Values.image.digests $name }}
{{- .Values.image.registry }}/{{ $name }}
{{- if and $digest (not .Values.image.tag) }}@{{ $digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "workwire.pod-security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "workwire.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The transport configuration of agent and hub. */}}
{{- define "workwire.transport" -}}
{{- $source := .Values.sourceID }}
{{- $usual := dict
  "brokerHost" (required "brokerHost is required: host:port of the broker" .Values.brokerHost)
  "tls" "required"
  "caFile" "/etc/workwire/broker/ca.crt"
  "clientCertFile" "/etc/workwire/broker/tls.crt"
  "clientKeyFile" "/etc/workwire/broker/tls.key"
  "topics" (dict
    "sourceEvents" (printf "sources/%s/clusters/+/sourceevents" $source)
    "agentEvents" (printf "sources/%s/clusters/+/agentevents" $source)
    "sourceBroadcast" "sources/+/sourcebroadcast"
    "agentBroadcast" "clusters/+/agentbroadcast") }}
{{- $given := deepCopy .Values.transport }}
{{- range $key, $value := .Values.transport }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $usual $key }}
{{- $_ := unset $given $key }}
{{- end }}
{{- end }}
{{- mergeOverwrite $usual $given | toYaml }}
{{- end }}

{{/* keys of a workload, and those of tracing. Takes a list: root, keys. */}}
{{- define "workwire.tracing" -}}
{{- $keys := index . 1 }}
{{- with (index . 0).Values.tracing }}
{{- if .endpoint }}
{{- $args := list (printf "--otlp-endpoint=%s" .endpoint) (printf "--otlp-sampling-ratio=%v" .samplingRatio) }}
{{- $sources := list }}
{{- with .headersSecret }}
{{- $args = append $args "--otlp-headers-file=/etc/workwire/tracing/headers" }}
{{- $sources = append $sources (dict "secret" (dict "name" .)) }}
{{- end }}
{{- with .ca }}
{{- $args = append $args "--otlp-ca-file=/etc/workwire/tracing/ca.crt" }}
{{- $sources = append $sources (dict "configMap" (dict "name" .)) }}
{{- end }}
{{- $key := dict "name" "tracing" "args" $args }}
{{- if $sources }}
{{- $_ := set $key "volume" (dict "projected" (dict "defaultMode" 0440 "sources" $sources)) }}
{{- end }}
{{- $keys = append $keys $key }}
{{- else if or .headersSecret .ca }}
{{- fail "tracing.headersSecret and tracing.ca need tracing.endpoint: the URL of the collector" }}
{{- end }}
{{- end }}
{{- toYaml $keys }}
{{- end }}

{{/*
The workload of agent or hub. Takes a dict: root, values (of the part), name, account, identity (flag and value), state,
keys (a list of dicts: name, args, and volume or none).
*/}}
{{- define "workwire.deployment" -}}
{{- $root := .root }}
{{- if not .join }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "workwire.labels" .name | nindent 4 }}
data:
  transport.yaml: |
    {{- include "workwire.transport" $root | nindent 4 }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "workwire.labels" .name | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  {{- if hasKey (.state | default dict) "persistentVolumeClaim" }}
  {{- if gt (int .values.replicas) 1 }}{{ fail "agent.stateVolume with a persistentVolumeClaim needs agent.replicas=1: only one pod can have the state" }}{{ end }}
  # The next pod may be on another node, where the volume cannot be while this one has it.
  strategy: {type: Recreate}
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "workwire.labels" .name | nindent 8 }}
      {{- if not .join }}
      annotations:
        # Not read again while it runs.
        checksum/config: {{ include "workwire.transport" $root | sha256sum }}
      {{- end }}
    spec:
      serviceAccountName: {{ .account }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "workwire.pod-security" . | nindent 8 }}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ .name }}
      {{- with .values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
      - name: {{ .name }}
        image: {{ include "workwire.image" (list $root .name) }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
        - {{ .identity | quote }}
        {{- if .join }}
        - {{ printf "--join-secret=%s/%s" $root.Release.Namespace .join | quote }}
        {{- else }}
        - --transport-config=/etc/workwire/config/transport.yaml
        {{- end }}
        {{- if .state }}
        - --state-dir=/var/lib/workwire/state
        {{- end }}
        - --listen-address=:8443
        - --listen-cert-file=/etc/workwire/listener/tls.crt
        - --listen-key-file=/etc/workwire/listener/tls.key
        - --listen-token-file=/etc/workwire/listener/token
        - --log-format=json
        {{- range .values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        {{- range .keys }}
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
        {{- end }}
        {{- $dashboard := and .values.dashboard .values.dashboard.enabled }}
        {{- if $dashboard }}
        - --dashboard-address=:8444
        - --dashboard-cert-file=/etc/workwire/listener/tls.crt
        - --dashboard-key-file=/etc/workwire/listener/tls.key
        {{- end }}
        {{- with $root.Values.proxy }}
        {{- if or .url .secret }}
        env:
        - name: HTTPS_PROXY
          {{- if .secret }}
          valueFrom:
            secretKeyRef:
              name: {{ .secret }}
              key: url
          {{- else }}
          value: {{ .url | quote }}
          {{- end }}
        - name: NO_PROXY
          value: {{ printf "$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local%s" (ternary (printf ",%s" .except) "" (ne .except "")) | quote }}
        {{- end }}
        {{- end }}
        ports:
        - name: https
          containerPort: 8443
        {{- if $dashboard }}
        - name: dashboard
          containerPort: 8444
        {{- end }}
        livenessProbe:
          httpGet:
            path: /healthz
            port: https
            scheme: HTTPS
          periodSeconds: 10
          timeoutSeconds: 6
        readinessProbe:
          httpGet:
            path: /readyz
            port: https
            scheme: HTTPS
          periodSeconds: 5
          timeoutSeconds: 6
        resources:
          {{- toYaml .values.resources | nindent 10 }}
        securityContext:
          {{- include "workwire.container-security" . | nindent 10 }}
        volumeMounts:
        {{- if not .join }}
        - name: config
          mountPath: /etc/workwire/config
          readOnly: true
        - name: broker
          mountPath: /etc/workwire/broker
          readOnly: true
        {{- end }}
        - name: listener
          mountPath: /etc/workwire/listener
          readOnly: true
        {{- if .state }}
        - name: state
          mountPath: /var/lib/workwire
        {{- end }}
        {{- range .keys }}
        {{- if .volume }}
        - name: {{ .name }}
          mountPath: /etc/workwire/{{ .name }}
          readOnly: true
        {{- end }}
        {{- end }}
      volumes:
      {{- if not .join }}
      - name: config
        configMap:
          name: {{ .name }}
      - name: broker
        secret:
          secretName: {{ .values.brokerSecret }}
          defaultMode: 0440
      {{- end }}
      - name: listener
        projected:
          defaultMode: 0440
          sources:
          - secret:
              name: {{ .values.listener.secret | default (printf "%s-listener" .name) }}
          - secret:
              name: {{ .values.listener.tokenSecret | default (printf "%s-listener-token" .name) }}
      {{- with .state }}
      - name: state
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- range .keys }}
      {{- if .volume }}
      - name: {{ .name }}
        {{- toYaml .volume | nindent 8 }}
      {{- end }}
      {{- end }}
{{ include "workwire.listener" . }}
{{- end }}

{{/* What the part serves metrics and health with, made once unless there are Secrets. */}}
{{- define "workwire.listener" -}}
{{- $namespace := .root.Release.Namespace }}
{{- if not .values.listener.secret }}
{{- $name := printf "%s-listener" .name }}
{{- $data := dict }}
{{- with lookup "v1" "Secret" $namespace $name }}
{{- $data = .data }}
{{- else }}
{{- $host := printf "%s.%s.svc" .name $namespace }}
{{- $ca := genCA (printf "%s listener" .name) 3650 }}
{{- $cert := genSignedCert $host nil (list $host) 3650 $ca }}
{{- $data = dict "ca.crt" ($ca.Cert | b64enc) "tls.crt" ($cert.Cert | b64enc) "tls.key" ($cert.Key | b64enc) }}
{{- end }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "workwire.labels" .name | nindent 4 }}
type: kubernetes.io/tls
data:
  {{- toYaml $data | nindent 2 }}
{{- end }}
{{- if not .values.listener.tokenSecret }}
{{ include "workwire.token" (dict "namespace" $namespace "part" .name "name" (printf "%s-listener-token" .name)) }}
{{- end }}
{{- end }}

{{/* A Secret with a random token, made once. Takes a dict: namespace, part, name. */}}
{{- define "workwire.token" -}}
{{- $data := dict }}
{{- with lookup "v1" "Secret" .namespace .name }}
{{- $data = .data }}
{{- else }}
{{- $data = dict "token" (randAlphaNum 48 | b64enc) }}
{{- end }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "workwire.labels" .part | nindent 4 }}
data:
  {{- toYaml $data | nindent 2 }}
{{- end }}

{{/* Monitor and network policies of a part. Takes a dict: root, folder, namespace, name, and listener or none. */}}
{{- define "workwire.around" -}}
{{- if .root.Values.monitoring.enabled }}
{{- if .listener }}
{{ include "workwire.file" (list .root (printf "files/%s/monitoring/service.yaml" .folder) .namespace) }}
{{- end }}
{{- $monitor := include "workwire.file" (list .root (printf "files/%s/monitoring/service-monitor.yaml" .folder) .namespace) }}
{{- with .listener }}
{{- with .tokenSecret }}{{ $monitor = $monitor | replace (printf "%s-listener-token\n" $.name) (printf "%s\n" .) }}{{ end }}
{{- with .secret }}{{ $monitor = $monitor | replace (printf "%s-listener\n" $.name) (printf "%s\n" .) }}{{ end }}
{{- end }}
{{- if eq .folder "broker" }}
{{- with .root.Values.broker.metricsTokenSecret }}{{ $monitor = $monitor | replace "work-broker-metrics-token\n" (printf "%s\n" .) }}{{ end }}
{{- $monitor = $monitor | replace "work-broker-tls\n" (printf "%s\n" .root.Values.broker.tlsSecret) }}
{{- end }}
{{ $monitor }}
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
{{- $policy := include "workwire.file" (list .root (printf "files/%s/network-policy.yaml" .folder) .namespace) }}
{{- if and (eq .folder "broker") .root.Values.broker.webSocketPath }}
{{- $policy = $policy | replace "    - port: mqtts\n" "    - port: mqtts\n    - port: wss\n" }}
{{- end }}
{{ $policy | replace "metadata.name: monitoring\n" (printf "metadata.name: %s\n" .root.Values.networkPolicy.monitoringNamespace) }}
{{- end }}
{{- if and .listener .root.Values.networkPolicy.restrictEgress }}
{{- $policy := include "workwire.file" (list .root (printf "files/%s/restrict-egress/network-policy.yaml" .folder) .namespace) }}
{{- if not .root.Values.brokerHost }}{{ fail "networkPolicy.restrictEgress needs brokerHost, whose port the agent connects to, also with agent.join" }}{{ end }}
{{- $host := regexReplaceAll "^wss://([^/]+).*$" .root.Values.brokerHost "${1}" }}
{{- with .root.Values.proxy }}
{{- if .secret }}{{ fail "networkPolicy.restrictEgress needs proxy.url in place of proxy.secret, which has the proxy's port" }}{{ end }}
{{- if .url }}{{ $host = regexReplaceAll "^(https?)://([^/]+).*$" .url "${2}" }}{{ end }}
{{- if and (hasPrefix "http://" .url) (not (regexMatch ":[0-9]+$" $host)) }}{{ $host = printf "%s:80" $host }}{{ end }}
{{- end }}
{{- $ports := printf "{port: %s," (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default "443") }}
{{- with .root.Values.tracing.endpoint }}
{{- with urlParse . }}
{{- $ports = printf "{port: %s, protocol: TCP}\n    - %s" (regexFind "[0-9]+$" .host | default "443") $ports }}
{{- end }}
{{- end }}
{{ $policy | replace "{port: 8883," $ports }}
{{- end }}
{{- end }}
