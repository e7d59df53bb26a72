package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// start runs the command until stop is called, or the test ends.
func start(t *testing.T, args ...string) (out *kit.Log, stop func() error) {
	t.Helper()
	out = &kit.Log{}
	cmd := newCommand(out)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(out)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return out, stop
}

func transportFile(t *testing.T, address, extra string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "transport.yaml")
	text := fmt.Sprintf(`brokerHost: %s
username: hub1
password: secret
topics:
  sourceEvents: sources/hub1/clusters/+/sourceevents
  agentEvents: sources/hub1/clusters/+/agentevents
%s`, address, extra)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestPublishesServesAndStopsClean(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{{Username: "hub1", Password: "secret", Role: acl.Source}}})
	out, stop := start(t, "--source-id=hub1", "--transport=mqtt", "--transport-config="+transportFile(t, b.Addr, ""),
		"--kubeconfig="+plane.Kubeconfig, "--listen-address=127.0.0.1:0", "--dashboard-address=127.0.0.1:0", "--log-format=text")
	url := "http://" + out.Await(t, `serving metrics and health" address=(\S+)`)
	kit.True(t, "the hub is ready", func() bool {
		// The checks of a standby pass: wait for the connection as well.
		_, metrics := get(t, url+"/metrics")
		status, _ := get(t, url+"/readyz")
		return status == 200 && strings.Contains(metrics, "workwire_source_connected 1")
	})
	if _, body := get(t, url+"/readyz?verbose"); body != "[+]caches ok\n[+]works ok\n[+]broker ok\n[+]clustersets ok\n[+]clustersetbindings ok\n[+]placement ok\n[+]replicaset ok\n[+]clusters ok\nreadyz check passed\n" {
		t.Errorf("readyz: %q", body)
	}

	if status, body := get(t, "http://"+out.Await(t, `serving the dashboard" address=(\S+)`)+"/"); status != 401 || !strings.Contains(body, "Sign in") {
		t.Errorf("dashboard: %d %s", status, body)
	}

	client, err := versioned.NewForConfig(plane.REST())
	if err != nil {
		t.Fatal(err)
	}
	works := client.WorkV1().ManifestWorks(plane.Namespace(t, "cluster"))
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{
		Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`)}}}
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`workwire_source_published_total{action="create_request",result="ok"} 1`,
		"workwire_hub_works 1", `workwire_hub_finalizers_added_total{result="ok"} 1`,
		`workwire_api_requests_total{code="200",resource="manifestworks",verb="patch"} 1`,
		`workwire_queue_adds_total{queue="finalizers"}`, "go_goroutines",
	} {
		kit.True(t, "the metric "+want, func() bool { // the work can be published before the patch is answered
			_, metrics := get(t, url+"/metrics")
			return strings.Contains(metrics, want)
		})
	}
	if err := stop(); err != nil {
		t.Errorf("a clean stop is no error: %v", err)
	}
	if log := out.String(); !strings.Contains(log, "released the Lease") || !strings.Contains(log, "msg=stopped") {
		t.Errorf("log:\n%s", log)
	}
}

func TestUnreachableBrokerIsRetried(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil { // nobody listens there now
		t.Fatal(err)
	}
	out, stop := start(t, "--source-id=hub1", "--controllers=", "--transport-config="+transportFile(t, address, ""), "--kubeconfig="+plane.Kubeconfig,
		"--listen-address=127.0.0.1:0", "--leader-election-namespace=default", "--log-format=json")
	out.Await(t, `"level":"(?:WARN|ERROR)".*`+regexp.QuoteMeta(address)+`.*connection refused`)
	url := "http://" + out.Await(t, `serving metrics and health","address":"([^"]+)"`)
	if status, body := get(t, url+"/readyz"); status != 503 || !strings.Contains(body, "[-]broker failed: not connected") {
		t.Errorf("readyz: %d %q", status, body)
	}
	if _, body := get(t, url+"/readyz"); strings.Contains(body, "]clusters ") || strings.Contains(body, "]placement ") {
		t.Errorf("an empty --controllers runs controllers: %q", body)
	}
	if status, _ := get(t, url+"/healthz"); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestFlagErrorsAreReportedTogether(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := transportFile(t, "127.0.0.1:1883", "")
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"nothing": {nil, []string{"--source-id is required", "--transport-config is required", "work-hub --help"}},
		"each flag": {
			[]string{"--source-id=Hub_1", "--transport=kafka", "--transport-config=/nowhere", "--workers=0", "--unreachable-grace=1ms", "--kube-api-burst=-1",
				"--listen-address=:80", "--dashboard-address=:90", "--log-format=xml", "--v=-1"},
			[]string{"--source-id", "--transport must", "/nowhere", "--workers", "--unreachable-grace", "--kube-api-burst", "--listen-address", "--dashboard-address", "--log-format", "--v"},
		},
		"leader election": {
			[]string{"--source-id=hub1", "--transport-config=" + good, "--leader-election-retry-period=1m", "--leader-election-namespace=A"},
			[]string{"--leader-election-retry-period", "--leader-election-namespace"},
		},
		"another source's topics": {
			[]string{"--source-id=hub2", "--transport-config=" + good},
			[]string{"--transport-config", good, `topics.sourceEvents: "sources/hub1/clusters/+/sourceevents"`},
		},
		"a key that does not exist": {
			[]string{"--source-id=hub1", "--transport-config=" + transportFile(t, "127.0.0.1:1883", "borkerHost: x\n")},
			[]string{"borkerHost"},
		},
		"no kubeconfig":         {[]string{"--source-id=hub1", "--transport-config=" + good}, []string{"--kubeconfig is required outside of a pod"}},
		"kubeconfig is missing": {[]string{"--source-id=hub1", "--transport-config=" + good, "--kubeconfig=/nowhere"}, []string{"/nowhere"}},
		"selector": {
			[]string{"--source-id=hub1", "--transport-config=" + good, "--cluster-selector=shard=a", "--disable-leader-election", "--controllers=-clusters", "--auto-register",
				"--leader-election-name=work-hub-hub1"},
			[]string{"--disable-leader-election", "--cluster-selector needs the controller clusters", "--auto-register needs a --cluster-selector", "--leader-election-name must not be"},
		},
		"controllers": {
			[]string{"--source-id=hub1", "--transport-config=" + good, "--auto-accept", "--controllers=nope"},
			[]string{"--auto-accept needs --auto-register", `--controllers: unknown controller "nope"`},
		},
		"no selector":  {[]string{"--source-id=hub1", "--transport-config=" + good, "--cluster-selector=a b"}, []string{"--cluster-selector must be a label selector"}},
		"unknown flag": {[]string{"--nope"}, []string{"--nope"}},
		"argument":     {[]string{"up"}, []string{`"up"`}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand(io.Discard)
			cmd.SetArgs(c.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not tell of %s", err, want)
				}
			}
		})
	}
}

func TestHelpShowsEveryFlagInItsGroup(t *testing.T) {
	var out bytes.Buffer
	cmd := newCommand(io.Discard)
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The hub:\n", "The broker:\n", "Replicas:\n", "Metrics and health:\n", "Logs:\n",
		"--source-id", "--kubeconfig", "--kube-api-qps", "--kube-api-burst", "--transport-config", "--client-id",
		"--disable-leader-election", "--leader-election-namespace", "--listen-address", "--dashboard-address", "--log-format", "-v, --v"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the help", want)
		}
	}
}

// Hubs with different selectors have different Leases and client ids, the same for one selector however
// it is written.
func TestSelectorHash(t *testing.T) {
	names := map[string]string{}
	for _, selector := range []string{"", "shard=a", "shard==a", "shard in (b,a)", "shard in (a, b)", "!shard"} {
		o := newOptions()
		o.source, o.clusterSelector, o.transportConfig = "hub1", selector, transportFile(t, "127.0.0.1:1883", "")
		o.kube.Kubeconfig = "x"
		_ = o.validate()
		if want := strings.Replace(o.leader.Name, "work-hub-hub1", "hub1-hub", 1); o.clientID != want {
			t.Errorf("%s: client id %s, Lease %s", selector, o.clientID, o.leader.Name)
		}
		names[selector] = o.leader.Name
	}
	if names[""] != "work-hub-hub1" || names["shard=a"] != names["shard==a"] || names["shard in (b,a)"] != names["shard in (a, b)"] ||
		names["shard=a"] == names["!shard"] || names["shard=a"] == names[""] {
		t.Errorf("names %v", names)
	}
}
