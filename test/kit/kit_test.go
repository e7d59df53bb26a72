package kit_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/test/kit"
)

func TestEventually(t *testing.T) {
	left := 3
	kit.Eventually(t, "the third call succeeds", func() error {
		if left--; left > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if left != 0 {
		t.Errorf("%d calls are left", left)
	}
}

func TestRunStopsOnce(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	stop := kit.Run(t, "a component", func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil
	})
	kit.Receive(t, "the start", started)
	stop()
	stop()
	kit.Receive(t, "the end", ended)
}

func TestAwait(t *testing.T) {
	configMaps := fake.NewClientset().CoreV1().ConfigMaps("default")
	go func() {
		_, _ = configMaps.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	}()
	absent := kit.Await(t, configMaps, "b", "is absent", func(c *corev1.ConfigMap) bool { return c == nil })
	if absent != nil {
		t.Errorf("got %v", absent)
	}
	kit.Eventually(t, "a is created", func() error {
		_, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{})
		return err
	})
	if got := kit.Await(t, configMaps, "a", "exists", func(c *corev1.ConfigMap) bool { return c != nil }); got.Name != "a" {
		t.Errorf("got %v", got)
	}
}

func TestRequests(t *testing.T) {
	requests := &kit.Requests{Bodies: true}
	config := requests.Wrap(&rest.Config{Transport: kit.RoundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(strings.NewReader(""))}, nil
	})})
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	_, _ = client.ConfigMaps("ns").Patch(t.Context(), "a", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{}, "status")
	_, _ = client.ConfigMaps("ns").List(t.Context(), metav1.ListOptions{})
	_, _ = client.Namespaces().Get(t.Context(), "other", metav1.GetOptions{})

	want := map[string]int{"patch configmaps/status": 1, "list configmaps": 1, "get namespaces": 1}
	if got := requests.Counts(); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	writes := requests.All(kit.Request.Writes)
	if len(writes) != 1 || writes[0].Namespace != "ns" || writes[0].Name != "a" || writes[0].Body != "{}" || writes[0].Code != 404 {
		t.Errorf("writes %+v", writes)
	}
	if got := requests.All(kit.InNamespace("ns"), kit.On("configmaps")); len(got) != 1 {
		t.Errorf("in the namespace: %+v", got)
	}
	if got := requests.Take(kit.Named("other")); len(got) != 1 || len(requests.All()) != 0 {
		t.Errorf("taken %+v, left %+v", got, requests.All())
	}

	requests.Fail(func(r kit.Request) error {
		if r.Verb == "get" {
			return errors.New("the test refuses it")
		}
		return nil
	})
	if _, err := client.Namespaces().Get(t.Context(), "other", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "the test refuses it") {
		t.Errorf("got %v", err)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"verb", "code"})
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Help: "Durations."})
	registry.MustRegister(requests, seconds)
	requests.WithLabelValues("get", "200").Add(2)
	requests.WithLabelValues("get", "404").Add(1)
	requests.WithLabelValues("list", "200").Add(4)
	seconds.Observe(3)

	for want, labels := range map[float64][]string{7: nil, 3: {"verb=get"}, 6: {"code=200"}, 1: {"verb=get", "code=404"}, 0: {"verb=patch"}} {
		if got := kit.Metric(t, registry, "requests_total", labels...); got != want {
			t.Errorf("%v: %v, want %v", labels, got, want)
		}
	}
	if got := kit.Metric(t, registry, "seconds_count"); got != 1 {
		t.Errorf("%v observations", got)
	}
	if got := kit.Gather(t, registry).ByLabel("requests_total", "verb"); !maps.Equal(got, map[string]float64{"get": 3, "list": 4}) {
		t.Errorf("by verb: %v", got)
	}
	parsed, err := kit.ParseMetrics(strings.NewReader("# TYPE a counter\na{b=\"c\"} 5\na{b=\"d\"} 6\nab 7\n"))
	if err != nil || parsed.Sum("a", "b=c") != 5 || parsed.Sum("a") != 11 || parsed.Sum("other") != 0 {
		t.Errorf("parsed %v, %v", parsed, err)
	}
}

func TestLog(t *testing.T) {
	log := &kit.Log{}
	log.Logger().Info("started", "address", "127.0.0.1:1")
	log.Logger().Debug("stopped")
	if got := log.Await(t, `address=(\S+)`); got != "127.0.0.1:1" {
		t.Errorf("got %q", got)
	}
	if got := log.Lines("level=DEBUG", "stopped"); len(got) != 1 || slices.Contains(got, "\n") {
		t.Errorf("lines %q", got)
	}
}
