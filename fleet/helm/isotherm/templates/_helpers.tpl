{{- define "isotherm.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "isotherm.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isotherm.labels" -}}
{{ include "isotherm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "isotherm.installsProfile" -}}
{{- if and (eq .Values.seccomp.type "Localhost") .Values.seccomp.install -}}true{{- end -}}
{{- end -}}

{{- define "isotherm.lake" -}}
{{- if eq .Values.lake.type "s3" -}}
s3://{{ required "lake.s3.bucket is missing: the chart writes to a bucket with lake.type s3" .Values.lake.s3.bucket }}
{{- with .Values.lake.s3.prefix }}/{{ . }}{{ end }}
{{- else -}}
/lake
{{- end -}}
{{- end -}}
