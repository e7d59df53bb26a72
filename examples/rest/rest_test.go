package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/sourcetest"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/postgreskit"
)

// service is a service on a real broker and a real database, with an agent.
type service struct {
	testing.TB
	options options
	base    string
	token   string
	stop    func()
}

func newService(t testing.TB, server *postgreskit.Server) *service {
	t.Helper()
	running := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "ops", Password: "secret", Role: acl.Source}, {Username: "cluster1", Password: "secret", Role: acl.Agent},
	}})
	topics := sourcetest.Topics("ops")
	connection, err := mqtt.New(mqtt.Config{ClientID: "cluster1-agent", Logger: kit.Logger(t),
		Broker: config.Config{BrokerHost: running.Addr, Username: "cluster1", Password: "secret", Topics: topics}})
	kit.NoError(t, err)
	agent, err := sourcetest.NewAgent(sourcetest.AgentConfig{Cluster: "cluster1", Source: "ops", Topics: topics, Transport: connection})
	kit.NoError(t, err)
	kit.Run(t, "agent", agent.Run)

	s := &service{TB: t}
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		kit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	s.options, err = parse([]string{
		"--source-id=ops", "--listen-address=127.0.0.1:0", "--database-url-file=" + file("url", server.URL(server.Database(t))+"\n"),
		"--transport-config=" + file("ops.yaml", fmt.Sprintf("brokerHost: %s\nusername: ops\npassword: secret\ntopics: {sourceEvents: %s, agentEvents: %s}\n",
			running.Addr, topics.SourceEvents, topics.AgentEvents)),
	}, io.Discard)
	kit.NoError(t, err)
	s.start()
	return s
}

func (s *service) start() {
	s.Helper()
	addresses := make(chan net.Addr, 1)
	s.stop = kit.Run(s, "service", func(ctx context.Context) error {
		return run(ctx, s.options, func(address net.Addr) { addresses <- address })
	})
	s.base = "http://" + kit.Receive(s, "the service listens", addresses).String()
}

// do sends a request, decodes the answer into into, and returns its code.
func (s *service) do(method, path, body string, into any) int {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.base+path, strings.NewReader(body))
	kit.NoError(s, err)
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, err := http.DefaultClient.Do(request)
	kit.NoError(s, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	kit.NoError(s, err)
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			s.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return response.StatusCode
}

func (s *service) expect(code int, method, path, body string) {
	s.Helper()
	if got := s.do(method, path, body, nil); got != code {
		s.Errorf("%s %s returns %d, want %d", method, path, got, code)
	}
}

// follow calls each for each change after a version, until it returns true. It returns the last id.
func (s *service) follow(last string, each func(kind string, work *workv1.ManifestWork) bool) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), kit.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/v1/watch?cluster=cluster1", nil)
	kit.NoError(s, err)
	request.Header.Set("Last-Event-ID", last)
	response, err := http.DefaultClient.Do(request)
	kit.NoError(s, err)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	kind := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			last = value
		case "event":
			kind = value
		case "data":
			work := &workv1.ManifestWork{}
			kit.NoError(s, json.Unmarshal([]byte(value), work))
			if each(kind, work) {
				return last
			}
		}
	}
	s.Fatalf("the stream ended: %v, %s", lines.Err(), response.Status)
	return ""
}

func deployment(name string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"app": "web"}}, "spec": {"workload": {"manifests": [{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": %[1]q, "namespace": "default"},
		"spec": {"replicas": 1, "selector": {"matchLabels": {"app": %[1]q}}, "template": {
			"metadata": {"labels": {"app": %[1]q}}, "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1.0"}]}}}}]}}}`, name)
}

const works = "/v1/clusters/cluster1/works"

// TestService: works are created, listed by pages and selectors, watched until they are applied, kept
// over a restart, and deleted.
func TestService(t *testing.T) {
	s := newService(t, postgreskit.Start(t))
	for _, name := range []string{"web1", "web2", "web3"} {
		s.expect(http.StatusCreated, "POST", works, deployment(name))
	}
	s.expect(http.StatusConflict, "POST", works, deployment("web1"))
	s.expect(http.StatusBadRequest, "POST", works, `{"metadata": {"nam": "x"}}`)
	s.expect(http.StatusUnprocessableEntity, "POST", works, `{"metadata": {"name": "x"}}`)
	s.expect(http.StatusRequestEntityTooLarge, "POST", works, `{"metadata": {"name": "`+strings.Repeat("x", maxBody)+`"}}`)
	s.expect(http.StatusNotFound, "GET", works+"/none", "")
	s.expect(http.StatusBadRequest, "GET", "/v1/works?limit=0", "")
	s.expect(http.StatusBadRequest, "GET", "/v1/works?continue=x", "")
	s.expect(http.StatusOK, "GET", "/openapi.yaml", "")

	applied := map[string]bool{}
	last := s.follow("", func(_ string, work *workv1.ManifestWork) bool {
		if meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			applied[work.Name] = true
		}
		return len(applied) == 3
	})
	var names []string
	for next, pages := "", 0; pages < 2; pages++ {
		list := workv1.ManifestWorkList{}
		s.do("GET", "/v1/works?limit=2&labelSelector=app%3Dweb&continue="+next, "", &list)
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		next = list.Continue
	}
	if got := strings.Join(names, " "); got != "web1 web2 web3" {
		t.Errorf("the pages have %q", got)
	}
	list := workv1.ManifestWorkList{}
	if s.do("GET", "/v1/works?labelSelector=app%3Dother", "", &list); len(list.Items) != 0 {
		t.Errorf("the selector does not select: %d works", len(list.Items))
	}

	s.stop()
	s.token = "a token"
	s.options.tokenFile = filepath.Join(t.TempDir(), "token")
	kit.NoError(t, os.WriteFile(s.options.tokenFile, []byte(s.token+"\n"), 0o600))
	s.start()
	s.expect(http.StatusOK, "GET", works+"/web2", "")
	s.token = ""
	s.expect(http.StatusUnauthorized, "GET", works+"/web2", "")
	s.expect(http.StatusUnauthorized, "DELETE", works+"/web2", "")
	s.token = "a token"
	s.expect(http.StatusAccepted, "DELETE", works+"/web2", "")
	kit.Eventually(t, "web2 is gone", func() error {
		if code := s.do("GET", works+"/web2", "", nil); code != http.StatusNotFound {
			return fmt.Errorf("the code is %d", code)
		}
		return nil
	})
	if last == "" {
		t.Error("events have no ids")
	}
}

// TestResume: a reader that connects again with the id of its last event misses nothing.
func TestResume(t *testing.T) {
	s := newService(t, postgreskit.Start(t))
	s.expect(http.StatusCreated, "POST", works, deployment("web1"))
	last := s.follow("", func(_ string, work *workv1.ManifestWork) bool {
		return meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied)
	})
	s.expect(http.StatusCreated, "POST", works, deployment("web2"))
	s.expect(http.StatusAccepted, "DELETE", works+"/web2", "")
	var kinds []string
	s.follow(last, func(kind string, work *workv1.ManifestWork) bool {
		if work.Name == "web2" && (len(kinds) == 0 || kinds[len(kinds)-1] != kind) {
			kinds = append(kinds, kind)
		}
		return kind == "DELETED"
	})
	if got := strings.Join(kinds, " "); got != "ADDED MODIFIED DELETED" {
		t.Errorf("a reader that connects again sees %q", got)
	}
}

// BenchmarkService measures what Maestro publishes of its service: creates per second, by one client
// and by ten, and a list of 600 works, each with a Deployment, over HTTP.
func BenchmarkService(b *testing.B) {
	const each = 300
	s := newService(b, postgreskit.StartDurable(b))
	made := 0
	create := func(clients int) float64 {
		var next atomic.Int64
		var calling sync.WaitGroup
		start := time.Now()
		for range clients {
			calling.Go(func() {
				for i := next.Add(1); i <= each; i = next.Add(1) {
					if code := s.do("POST", works, deployment(fmt.Sprint("web", made+int(i))), nil); code != http.StatusCreated {
						b.Errorf("create returns %d", code)
					}
				}
			})
		}
		calling.Wait()
		made += each
		return each / time.Since(start).Seconds()
	}
	for b.Loop() {
		b.ReportMetric(create(1), "creates/s-of-one")
		b.ReportMetric(create(10), "creates/s-of-10")
		start := time.Now()
		list := workv1.ManifestWorkList{}
		s.do("GET", "/v1/works", "", &list)
		b.ReportMetric(float64(time.Since(start).Microseconds())/1000, fmt.Sprintf("list-%d-ms", len(list.Items)))
	}
}
