package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// secretValue must be in no audit log.
const secretValue = "hunter2-of-the-audit-test"

// TestAuditLog: hub and agent record what they decide and do, by work, generation and digest, and
// never a value.
func TestAuditLog(t *testing.T) {
	var hubLog, agentLog string
	w := newWorld(t, 1, func(w *world) {
		hubLog, agentLog = filepath.Join(w.Dir, "hub-audit.log"), filepath.Join(w.Dir, "agent-audit.log")
		w.hubArgs, w.agentArgs = []string{"--audit-log=" + hubLog}, []string{"--audit-log=" + agentLog}
	})
	w.put("web", secretValue, "a", "b")
	w.converge()
	w.put("web", secretValue+"2", "a")
	w.converge()
	spec, _ := w.spec("denied", secretValue, "a")
	spec.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: w.target, Name: "nobody"},
	}}
	_, err := w.works.Create(t.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "denied"}, Spec: spec}, create)
	kit.NoError(t, err)
	topic := fmt.Sprintf("sources/%s/clusters/%s/", source, w.cluster)
	forger := wirekit.Connect(w, w.client(w.cluster), topic+"sourceevents")
	forger.Publish(w, topic+"agentevents", &wire.Status{
		UID: "forged", Generation: 1, Source: source, Cluster: "another", Agent: "forger", Action: wire.Update, Sequence: 1,
	}, nil)
	nobody := fmt.Sprintf("system:serviceaccount:%s:nobody", w.target)
	w.recorded(hubLog, "work-hub",
		audit.Record{Event: audit.Publish, Verdict: "sent", Work: "web", Generation: 1, Topic: topic + "sourceevents"},
		audit.Record{Event: audit.Publish, Verdict: "sent", Work: "web", Generation: 2},
		audit.Record{Event: audit.Receive, Verdict: "accepted", Work: "web", Generation: 2, Identity: w.cluster, Topic: topic + "agentevents"},
		audit.Record{Event: audit.Receive, Verdict: "wrong_cluster", UID: "forged", Identity: w.cluster},
	)
	w.recorded(agentLog, "work-agent",
		audit.Record{Event: audit.Receive, Verdict: "added", Work: "web", Generation: 1, Identity: source, Topic: topic + "sourceevents"},
		audit.Record{Event: audit.Receive, Verdict: "replaced", Work: "web", Generation: 2},
		audit.Record{Event: audit.Apply, Verdict: "created", Work: "web", Generation: 1, Object: "configmaps " + w.target + "/web-b"},
		audit.Record{Event: audit.Apply, Verdict: "updated", Work: "web", Generation: 2, Object: "configmaps " + w.target + "/web-a"},
		audit.Record{Event: audit.Remove, Verdict: "removed", Work: "web", Generation: 2, Object: "configmaps " + w.target + "/web-b"},
		audit.Record{Event: audit.Apply, Verdict: "denied", Work: "denied", Identity: nobody},
	)
	kit.NoError(t, w.works.Delete(t.Context(), "denied", deleted))
	w.end()
	w.recorded(hubLog, "work-hub", audit.Record{Event: audit.Publish, Verdict: "deletion", Work: "web"})
	w.recorded(agentLog, "work-agent",
		audit.Record{Event: audit.Receive, Verdict: "deletion", Work: "web"},
		audit.Record{Event: audit.Remove, Verdict: "removed", Work: "web", Object: "configmaps " + w.target + "/web-a"},
	)
}

// recorded waits until a file has records with the fields of want that are set, and checks that all
// its records are complete.
func (w *world) recorded(file, program string, want ...audit.Record) {
	w.Helper()
	kit.Eventually(w, "the records of "+program, func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(secretValue)) {
			w.Fatalf("the audit log has a value of an object:\n%s", text)
		}
		var records []audit.Record
		for line := range bytes.Lines(text) {
			var r audit.Record
			if err := json.Unmarshal(line, &r); err != nil {
				return fmt.Errorf("%q: %w", line, err) // it may be half written
			}
			digest := r.Event == audit.Publish && r.Verdict == "sent" || r.Event == audit.Apply || r.Verdict == "added" || r.Verdict == "replaced"
			if r.Program != program || r.Time.IsZero() || r.Verdict == "" || digest && r.Digest == "" {
				w.Fatalf("record %s", line)
			}
			records = append(records, r)
		}
		var errs []error
		for _, r := range want {
			if !contains(records, r) {
				errs = append(errs, fmt.Errorf("no record like %+v", r))
			}
		}
		return errors.Join(errs...)
	})
}

// contains reports whether one of records has the fields of want that are set.
func contains(records []audit.Record, want audit.Record) bool {
	for _, r := range records {
		if r.Event == want.Event && r.Verdict == want.Verdict && has(r.Work, want.Work) && has(r.Identity, want.Identity) && has(r.Topic, want.Topic) &&
			has(r.Object, want.Object) && has(r.UID, want.UID) && has(r.Generation, want.Generation) {
			return true
		}
	}
	return false
}

func has[T comparable](value, want T) bool {
	var none T
	return want == none || value == want
}
