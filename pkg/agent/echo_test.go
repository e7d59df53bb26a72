package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/test/kit"
)

// TestEchoesCostNoReconcile delays the responses to writes until a watch has shown the writes, and
// counts the reconciles. It does not run in parallel: an agent reconciles the AppliedManifestWorks
// of all agents of the cluster.
func TestEchoesCostNoReconcile(t *testing.T) {
	w := newSerialWorld(t)
	works := w.source("hub1")
	registry := prometheus.NewRegistry()
	slow := &slowAnswers{shown: make(chan struct{}, 1)}
	w.agent(func(c *agent.Config) {
		c.Registerer = registry
		c.Kube.Wrap(slow.wrap)
	})
	w.deploy(works, "web", configMap("a", "0"), configMap("b", "0"))
	w.names("web")
	const reconciles = "workwire_agent_reconcile_duration_seconds_count"
	before := kit.Gather(t, registry).Sum(reconciles) // the first one may not have ended
	slow.begin()
	const updates = 10
	for i := range updates {
		value := fmt.Sprint(i + 1)
		w.change(works, "web", configMap("a", value), configMap("b", value))
		w.Is(works, "web", "Applied=True")
	}
	if held := slow.end(); held < 2*updates {
		t.Errorf("only %d responses came after their echo: the test proves nothing", held)
	}
	// A reconcile is counted when it ends, after it has reported the status.
	if got := kit.Metric(t, registry, reconciles) - before; got < updates-1 || got > updates+3 {
		t.Errorf("%v reconciles of a work that was changed %d times", got, updates)
	}
	// A foreign change is not taken for an echo.
	w.patch("a", `{"data":{"k":"foreign"}}`)
	w.data("a", fmt.Sprint(updates))
}

// TestTwoWorksConflict: two works declare one object, and each restores its own version, until both
// report a conflict.
func TestTwoWorksConflict(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "one", configMap("a", "1"))
	w.Create(works, w.work("two", configMap("a", "2")))
	for name, other := range map[string]string{"one": "two", "two": "one"} {
		w.manifestSays(works, name, 0, fmt.Sprintf("which is undone again and again by ManifestWork %q", other))
	}
	w.remove(works, "two")
	w.data("a", "1")
}

// slowAnswers delays the responses to writes until a watch has shown the written objects.
type slowAnswers struct {
	shown chan struct{} // a watch has shown more

	mu      sync.Mutex
	slow    bool
	held    int
	watched bytes.Buffer
}

func (s *slowAnswers) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = true
}

// end returns the number of responses that were delayed.
func (s *slowAnswers) end() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = false
	return s.held
}

func (s *slowAnswers) wrap(next http.RoundTripper) http.RoundTripper {
	return kit.RoundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		switch verb, _ := kube.Describe(request); {
		case verb == "watch":
			response.Body = &shownBody{ReadCloser: response.Body, to: s}
		case request.Method != http.MethodGet && response.StatusCode < 300:
			answer, err := io.ReadAll(response.Body)
			if err != nil {
				return nil, err
			}
			s.keep(request.Context(), answer)
			response.Body = io.NopCloser(bytes.NewReader(answer))
		}
		return response, nil
	})
}

// keep returns once a watch has shown the written object, or ctx ends.
func (s *slowAnswers) keep(ctx context.Context, answer []byte) {
	var written metav1.PartialObjectMetadata
	if json.Unmarshal(answer, &written) != nil || written.ResourceVersion == "" {
		return
	}
	for {
		s.mu.Lock()
		slow, shown := s.slow, strings.Contains(s.watched.String(), `"resourceVersion":"`+written.ResourceVersion+`"`)
		if slow && shown {
			s.held++
		}
		s.mu.Unlock()
		if !slow || shown {
			s.wake() // another may wait for what came with it
			return
		}
		select {
		case <-s.shown:
		case <-ctx.Done():
			return
		}
	}
}

func (s *slowAnswers) wake() {
	select {
	case s.shown <- struct{}{}:
	default:
	}
}

type shownBody struct {
	io.ReadCloser
	to *slowAnswers
}

func (b *shownBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.to.mu.Lock()
	b.to.watched.Write(p[:n])
	b.to.mu.Unlock()
	b.to.wake()
	return n, err
}
