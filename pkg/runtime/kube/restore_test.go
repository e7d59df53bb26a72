package kube_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/runtime/kube"
)

// TestNoticeRestore: a watch from a resource version that the API server has not reached is
// refused as expired, so that its informer lists again; others are passed on.
func TestNoticeRestore(t *testing.T) {
	for name, c := range map[string]struct {
		options  metav1.ListOptions
		refuses  int // the status code of lists
		requests []string
		want     func(error) bool
	}{
		"reached": {
			metav1.ListOptions{ResourceVersion: "100", LabelSelector: "a=b"}, 0,
			[]string{"labelSelector=a%3Db&limit=1", "labelSelector=a%3Db&resourceVersion=100&watch=true"}, nil,
		},
		"yet to come":          {metav1.ListOptions{ResourceVersion: "101"}, 0, []string{"limit=1"}, apierrors.IsResourceExpired},
		"from any version":     {metav1.ListOptions{ResourceVersion: "0"}, 0, []string{"resourceVersion=0&watch=true"}, nil},
		"from the newest":      {metav1.ListOptions{}, 0, []string{"watch=true"}, nil},
		"no list is permitted": {metav1.ListOptions{ResourceVersion: "9"}, http.StatusForbidden, []string{"limit=1"}, apierrors.IsForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, r.URL.RawQuery)
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Query().Get("watch") == "" && c.refuses != 0 {
					w.WriteHeader(c.refuses)
				}
				_, _ = fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"100"}}`)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			kube.NoticeRestore(config)
			watch, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("ns").Watch(t.Context(), c.options)
			if err == nil {
				watch.Stop()
			}
			if c.want == nil && err != nil || c.want != nil && !c.want(err) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(requests, c.requests) {
				t.Errorf("requests %s", strings.Join(requests, ", "))
			}
		})
	}
}
