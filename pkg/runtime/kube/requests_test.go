package kube_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

func TestDescribe(t *testing.T) {
	for _, c := range []struct{ method, url, verb, resource string }{
		{"GET", "/api/v1/namespaces/a/configmaps/b", "get", "configmaps"},
		{"GET", "/api/v1/namespaces/a/configmaps", "list", "configmaps"},
		{"GET", "/api/v1/namespaces", "list", "namespaces"},
		{"GET", "/api/v1/namespaces/a", "get", "namespaces"},
		{"GET", "/apis/apps/v1/deployments?watch=true", "watch", "deployments"},
		{"POST", "/apis/apps/v1/namespaces/a/deployments", "create", "deployments"},
		{"PATCH", "/apis/work.open-cluster-management.io/v1/namespaces/a/manifestworks/w/status", "patch", "manifestworks/status"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update", "leases"},
		{"DELETE", "/api/v1/nodes/n", "delete", "nodes"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "pods"},
		{"GET", "/apis/apps/v1", "get", "other"},
		{"GET", "/version", "get", "other"},
		{"GET", "/", "get", "other"},
	} {
		verb, resource := kube.Describe(httptest.NewRequest(c.method, c.url, nil))
		if verb != c.verb || resource != c.resource {
			t.Errorf("%s %s: %s %s, want %s %s", c.method, c.url, verb, resource, c.verb, c.resource)
		}
	}
}

func TestCountRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer server.Close()
	registry := prometheus.NewRegistry()
	config := &rest.Config{Host: server.URL}
	kit.NoError(t, kube.CountRequests(config, registry))
	client, err := rest.HTTPClientFor(config)
	kit.NoError(t, err)
	response, err := client.Get(server.URL + "/api/v1/namespaces/a/pods")
	kit.NoError(t, err)
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	found, err := testutil.GatherAndCount(registry, "workwire_api_requests_total")
	if err != nil || found != 1 {
		t.Errorf("%d series, %v", found, err)
	}
	if err := kube.CountRequests(&rest.Config{}, registry); err == nil {
		t.Error("registered twice")
	}
}

func TestQueueMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := kube.NewQueueMetrics(registry)
	kit.NoError(t, err)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Millisecond),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "finalizers", MetricsProvider: metrics})
	defer queue.ShutDown()
	queue.Add("a")
	queue.Add("b")
	item, _ := queue.Get()
	queue.AddRateLimited(item)
	queue.Done(item)
	values := map[string]float64{}
	families, err := registry.Gather()
	kit.NoError(t, err)
	for _, family := range families {
		m := family.GetMetric()[0]
		values[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	for name, want := range map[string]float64{"workwire_queue_retries_total": 1, "workwire_queue_wait_seconds": 1, "workwire_queue_work_seconds": 1} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	if values["workwire_queue_adds_total"] < 2 || len(values) != 7 {
		t.Errorf("metrics %v", values)
	}
	if _, err := kube.NewQueueMetrics(registry); err == nil {
		t.Error("registered twice")
	}
}
