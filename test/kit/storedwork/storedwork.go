// Package storedwork has works as an API server sends them, for tests and measurements that need
// more than a real one makes in their time.
//
//	fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", storedwork.Work(i, i/100, i+1))
package storedwork

import "fmt"

// metadata is the metadata of a work: %[1]d is its number, %[2]d that of its cluster, %[3]d its resource
// version.
const metadata = `"metadata":{"annotations":{"example.com/team":"payments"},` +
	`"creationTimestamp":"2026-11-01T08:00:00Z","finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"],"generation":3,` +
	`"labels":{"app":"web-%[1]d"},"managedFields":[{"apiVersion":"work.open-cluster-management.io/v1","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:spec":{"f:workload":{".":{},"f:manifests":{}}}},"manager":"kubectl","operation":"Update","time":"2026-11-01T08:00:00Z"}],` +
	`"name":"web-%[1]d","namespace":"cluster-%[2]d","resourceVersion":"%[3]d","uid":"3c1b9fd2-7a54-4c27-9d0e-%012[1]d"}`

// work is a work with a Deployment of 2 KB and a status of 1.5 KB. %[4]x and %[5]x are hashes in it.
const work = `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork",` + metadata + `,` +
	`"spec":{"workload":{"manifests":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web-%[1]d","app.kubernetes.io/managed-by":"gitops"},` +
	`"name":"web-%[1]d","namespace":"shop"},"spec":{"progressDeadlineSeconds":600,"replicas":3,"revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"web-%[1]d"}},` +
	`"strategy":{"rollingUpdate":{"maxSurge":"25%%","maxUnavailable":"25%%"},"type":"RollingUpdate"},"template":{"metadata":{"annotations":{"checksum/config":"%064[4]x"},` +
	`"labels":{"app":"web-%[1]d"}},"spec":{"containers":[{"args":["--listen=:8080","--upstream=http://orders-%[1]d.shop.svc:8080","--log-level=info"],` +
	`"env":[{"name":"REGION","value":"eu-central-1"},{"name":"SHARD","value":"%[1]d"},{"name":"PASSWORD","valueFrom":{"secretKeyRef":{"key":"password","name":"web-%[1]d"}}}],` +
	`"image":"registry.example.com/shop/web@sha256:%064[5]x","imagePullPolicy":"IfNotPresent","livenessProbe":{"failureThreshold":3,"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},` +
	`"initialDelaySeconds":5,"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},"name":"web","ports":[{"containerPort":8080,"name":"http","protocol":"TCP"}],` +
	`"readinessProbe":{"failureThreshold":3,"httpGet":{"path":"/readyz","port":8080,"scheme":"HTTP"},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1},` +
	`"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true},` +
	`"volumeMounts":[{"mountPath":"/etc/web","name":"config"}]}],"restartPolicy":"Always","serviceAccountName":"web","terminationGracePeriodSeconds":30,` +
	`"volumes":[{"configMap":{"defaultMode":420,"name":"web-%[1]d"},"name":"config"}]}}}}]}},` +
	`"status":{"conditions":[{"lastTransitionTime":"2026-11-01T08:00:02Z","message":"Apply manifest work complete","observedGeneration":3,"reason":"AppliedManifestWorkComplete","status":"True","type":"Applied"},` +
	`{"lastTransitionTime":"2026-11-01T08:00:09Z","message":"All resources are available","observedGeneration":3,"reason":"ResourcesAvailable","status":"True","type":"Available"},` +
	`{"lastTransitionTime":"2026-11-01T08:00:02Z","message":"The agent has answered","observedGeneration":3,"reason":"Answered","status":"True","type":"Delivered"}],` +
	`"delivery":{"acceptedTime":"2026-11-01T08:00:00.100000Z","acknowledgedTime":"2026-11-01T08:00:00.300000Z","appliedTime":"2026-11-01T08:00:01.300000Z","generation":3,"publishedTime":"2026-11-01T08:00:00.200000Z","receivedTime":"2026-11-01T08:00:00.400000Z"},` +
	`"resourceStatus":{"manifests":[{"conditions":[{"lastTransitionTime":"2026-11-01T08:00:02Z","message":"Apply manifest complete","reason":"AppliedManifestComplete","status":"True","type":"Applied"},` +
	`{"lastTransitionTime":"2026-11-01T08:00:09Z","message":"Resource is available","reason":"ResourceAvailable","status":"True","type":"Available"}],` +
	`"resourceMeta":{"group":"apps","kind":"Deployment","name":"web-%[1]d","namespace":"shop","ordinal":0,"resource":"deployments","version":"v1"},` +
	`"statusFeedback":{"values":[{"fieldValue":{"integer":3,"type":"Integer"},"name":"ReadyReplicas"},{"fieldValue":{"integer":3,"type":"Integer"},"name":"Replicas"}]}}]}}}`

// Work returns the JSON of a ManifestWork by its number, that of its cluster, and its resource version. Works
// with other numbers compress no better than real ones.
func Work(number, cluster, version int) string {
	return fmt.Sprintf(work, number, cluster, version, uint64(number)*0x9E3779B97F4A7C15, uint64(number)*0xD1342543DE82EF95)
}

// Metadata returns the JSON of the work as a list of metadata has it.
func Metadata(number, cluster, version int) string {
	return fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",`+metadata+`}`, number, cluster, version)
}
