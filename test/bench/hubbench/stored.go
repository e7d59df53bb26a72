package hubbench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/workwire/workwire/test/kit/storedwork"
)

// storedWorks is an API server that has works of [startClusterWorks] a cluster, and keeps no write.
type storedWorks struct{ count int }

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
		s.list(w, r, resource)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *storedWorks) watch(w http.ResponseWriter, r *http.Request, resource string) {
	out := bufio.NewWriterSize(w, 1<<16)
	if resource == "manifestworks" {
		for i := range s.count {
			fmt.Fprintf(out, `{"type":"ADDED","object":%s}`+"\n", storedwork.Work(i, i/startClusterWorks, i+1))
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
	"placements": "Placement", "placementdecisions": "PlacementDecision", "addonplacementscores": "AddOnPlacementScore", "workoverrides": "WorkOverride", "rolloutplans": "RolloutPlan",
}

// list answers with a page of metadata; the token of the next one is the number of its first work.
func (s *storedWorks) list(w http.ResponseWriter, r *http.Request, resource string) {
	first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	end, next := s.count, ""
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); resource == "manifestworks" && limit > 0 && first+limit < end {
		end, next = first+limit, strconv.Itoa(first+limit)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d","continue":%q},"items":[`, s.count+1, next)
	if resource == "manifestworks" {
		separator := ""
		for i := first; i < end; i++ {
			fmt.Fprint(out, separator+storedwork.Metadata(i, i/startClusterWorks, i+1))
			separator = ","
		}
	}
	fmt.Fprint(out, "]}")
	_ = out.Flush()
}
