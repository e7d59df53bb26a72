package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

// TestLostWithoutReconnect: half of the messages are lost although they were acknowledged, in both
// directions, while the connections stay. Digests find what is missing, and only what differs is
// sent again.
func TestLostWithoutReconnect(t *testing.T) {
	w := newWorld(t, 1, func(w *world) {
		w.agentArgs = []string{"--digest-interval=1s"}
		w.hubArgs = []string{"--v=4"}
		w.keepAlive = 10
	})
	for i := range 20 {
		w.put(fmt.Sprint("unchanged-", i), "value", "a")
	}
	for i := range 6 {
		w.put(fmt.Sprint("changed-", i), "value", "a")
	}
	w.converge()
	w.agree()
	published, connected := w.published("unchanged-"), w.published("")
	if published < 20 {
		t.Fatalf("the hub's log has %d publishes of 20 works", published)
	}

	w.agentLoss.lose(0.5)
	for i := range 30 {
		w.put(fmt.Sprint("changed-", i%6), fmt.Sprint("value ", i), "a")
		time.Sleep(20 * time.Millisecond)
	}
	kit.True(t, "messages to be lost", func() bool { return w.agentLoss.lose(0.5) > 5 })
	w.agentLoss.lose(1) // by chance alone the last spec of each work may arrive, and nothing differs
	w.remove("changed-0")
	w.put("fresh", "value", "a")
	kit.True(t, "a spec to be lost", func() bool { return w.agentLoss.hasLost("fresh") })
	w.agentLoss.lose(0)
	w.converge()
	w.agree()
	if n := w.published("unchanged-"); n != published {
		t.Errorf("works that did not differ were published %d times again", n-published)
	}
	if !bytes.Contains(w.log("agent"), []byte("works differ from those of their source, requesting them")) {
		t.Error("the agent's log does not say that works differed")
	}
	t.Logf("%d specs were published for 32 changes", w.published("")-connected)
	for _, program := range []string{"agent", "hub"} {
		if n := bytes.Count(w.log(program), []byte("connection lost")); n > 0 {
			t.Errorf("the %s lost its connection %d times", program, n)
		}
	}
	w.end()
}

// agree waits until a digest has no difference.
func (w *world) agree() {
	w.Helper()
	before := -1
	kit.Within(w, limit, "a digest has no difference", func() error {
		equal, err := w.metric(w.hub, "workwire_source_digests_total", "result=equal")
		if before < 0 {
			before = equal
		}
		if err == nil && equal == before {
			err = fmt.Errorf("%d digests had none", equal)
		}
		return err
	})
}

// metric returns the sum of a metric of a program.
func (w *world) metric(p *process.Process, name string, labels ...string) (int, error) {
	w.Helper()
	metrics, err := w.Metrics(p)
	return int(metrics.Sum(name, labels...)), err
}

// log returns the log of a program.
func (w *world) log(name string) []byte {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dir, name+".log"))
	kit.NoError(w, err)
	return text
}

// published returns how often the hub has published the spec of a work whose name begins so.
func (w *world) published(name string) (n int) {
	w.Helper()
	for line := range bytes.Lines(w.log("hub")) {
		if bytes.Contains(line, []byte("spec published")) && bytes.Contains(line, []byte(name)) {
			n++
		}
	}
	return n
}
