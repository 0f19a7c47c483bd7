{{- define "rallypoint.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "rallypoint.selector" -}}
app.kubernetes.io/name: rallypoint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rallypoint.labels" -}}
{{ include "rallypoint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "rallypoint.scheme" -}}
{{- ternary "https" "http" (ne .Values.tls.secretName "") -}}
{{- end -}}

{{- define "rallypoint.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "rallypoint.advertisedUrl" -}}
{{- $service := printf "%s.%s.svc:%v" (include "rallypoint.name" .) .Release.Namespace .Values.service.port -}}
{{- $pod := printf "$(POD_NAME).%s-nodes.%s.svc:8000" (include "rallypoint.name" .) .Release.Namespace -}}
{{- $here := printf "%s://%s" (include "rallypoint.scheme" .) (ternary $pod $service (ne .Values.cluster.storage "")) -}}
{{- default $here .Values.advertisedUrl -}}
{{- end -}}

{{- /* Prometheus calls a Pod by its address, a client by any of the Service's names, and one that knows the Pod by that. */ -}}
{{- define "rallypoint.allowedHosts" -}}
{{- $hosts := list (ternary "$(POD_IP)" "[$(POD_IP)]" (eq .Values.ipFamily "IPv4")) -}}
{{- $name := include "rallypoint.name" . -}}
{{- range $service := list $name (printf "$(POD_NAME).%s-nodes" $name) -}}
{{- range $end := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) -}}
{{- $hosts = append $hosts (printf "%s%s" $service $end) -}}
{{- end -}}
{{- end -}}
{{- join "," (concat $hosts .Values.allowedHosts) -}}
{{- end -}}

{{- /* What is wrong with the values together is said before anything is made. */ -}}
{{- define "rallypoint.check" -}}
{{- if and (not .Values.tokens.secretName) (not .Values.tls.clientAuth) (not .Values.insecure) -}}
{{- fail "Name a Secret with hashes of tokens in tokens.secretName, or set tls.clientAuth. If everybody who reaches the Service may do everything, say insecure: true." -}}
{{- end -}}
{{- if and .Values.tls.clientAuth (not .Values.tls.secretName) -}}
{{- fail "tls.clientAuth needs tls.secretName: without TLS nobody shows a certificate." -}}
{{- end -}}
{{- if and .Values.advertisedUrl (ne (hasPrefix "https:" .Values.advertisedUrl) true) .Values.tls.secretName -}}
{{- fail "advertisedUrl has to begin with https://, since tls.secretName is set." -}}
{{- end -}}
{{- if and .Values.cluster.storage .Values.advertisedUrl (not (contains "$(POD_NAME)" .Values.advertisedUrl)) -}}
{{- fail "In a cluster each node has a URL of its own: advertisedUrl has to contain $(POD_NAME)." -}}
{{- end -}}
{{- end -}}

{{- /* A kubelet shows no certificate. Where one is required it can see that the port is open, and no more. */ -}}
{{- define "rallypoint.probe" -}}
{{- if eq .context.Values.tls.clientAuth "required" -}}
tcpSocket:
  port: api
{{- else -}}
httpGet:
  path: {{ .path }}
  port: api
  scheme: {{ include "rallypoint.scheme" .context | upper }}
{{- end -}}
{{- end -}}

{{- define "rallypoint.alive" -}}
{{- include "rallypoint.probe" (dict "context" . "path" "/healthz") -}}
{{- end -}}

{{- define "rallypoint.ready" -}}
{{- include "rallypoint.probe" (dict "context" . "path" "/readyz") -}}
{{- end -}}
