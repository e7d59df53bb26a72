package hubbench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
)

// storedWorks is an API server that has works of [startClusterWorks] a cluster, and keeps no write.
type storedWorks struct{ count int }

// storedMeta is the metadata of a work as an API server sends it: %[1]d is its number, %[2]d that of its
// cluster, %[3]d its resource version.
const storedMeta = `"metadata":{"annotations":{"example.com/team":"payments"},` +
	`"creationTimestamp":"2026-11-01T08:00:00Z","finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"],"generation":3,` +
	`"labels":{"app":"web-%[1]d"},"managedFields":[{"apiVersion":"work.open-cluster-management.io/v1","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:spec":{"f:workload":{".":{},"f:manifests":{}}}},"manager":"kubectl","operation":"Update","time":"2026-11-01T08:00:00Z"}],` +
	`"name":"web-%[1]d","namespace":"cluster-%[2]d","resourceVersion":"%[3]d","uid":"3c1b9fd2-7a54-4c27-9d0e-%012[1]d"}`

// storedWork is a work of a Deployment, with its status. %[4]x and %[5]x are hashes in it.
const storedWork = `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork",` + storedMeta + `,` +
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

// listedWork is a work in a list of metadata.
const listedWork = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",` + storedMeta + `}`

// ServeHTTP answers the hub's requests: reads of its identity, Leases, watches that begin with all
// objects, and lists of metadata.
func (s *storedWorks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, watch := path.Base(r.URL.Path), r.URL.Query().Get("watch") != ""
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost && resource == "leases", r.Method == http.MethodPut && path.Base(path.Dir(r.URL.Path)) == "leases":
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case r.Method != http.MethodGet:
		w.WriteHeader(http.StatusForbidden)
	case resource == "workwire-source-identity":
		fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q},"data":{%q:"7a4f2b0e-60b2-4a4e-9a1e-0f9d4b2a5c11"}}`, resource, source)
	case watch:
		s.watch(w, r, resource)
	case strings.HasSuffix(resource, "s") && path.Base(path.Dir(path.Dir(r.URL.Path))) != "namespaces":
		s.list(w, resource)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *storedWorks) watch(w http.ResponseWriter, r *http.Request, resource string) {
	out := bufio.NewWriterSize(w, 1<<16)
	if resource == "manifestworks" {
		for i := range s.count {
			fmt.Fprintf(out, `{"type":"ADDED","object":`+storedWork+"}\n", i, i/startClusterWorks, i+1, uint64(i)*0x9E3779B97F4A7C15, uint64(i)*0xD1342543DE82EF95)
		}
	}
	fmt.Fprintf(out, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
		kinds[resource], strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), s.count+1)
	_ = out.Flush()
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// kinds of the resources that the hub watches.
var kinds = map[string]string{
	"manifestworks": "ManifestWork", "manifestworkreplicasets": "ManifestWorkReplicaSet", "manifestworkrevisions": "ManifestWorkRevision",
	"managedclusters": "ManagedCluster", "managedclustersets": "ManagedClusterSet", "managedclustersetbindings": "ManagedClusterSetBinding",
	"placements": "Placement", "placementdecisions": "PlacementDecision",
}

func (s *storedWorks) list(w http.ResponseWriter, resource string) {
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d"},"items":[`, s.count+1)
	if resource == "manifestworks" {
		separator := ""
		for i := range s.count {
			fmt.Fprintf(out, separator+listedWork, i, i/startClusterWorks, i+1)
			separator = ","
		}
	}
	fmt.Fprint(out, "]}")
	_ = out.Flush()
}
