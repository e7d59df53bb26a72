package fleet

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/pkg/workstate/explain"
)

// TestAttentionOfASet: of the works of one set, those that wait for a work of another set, of which there is no line, need no attention, unless their
// agent says that it is not there.
func TestAttentionOfASet(t *testing.T) {
	waits := func(name, message string, others ...string) WorkLine {
		return WorkLine{Cluster: "cluster1", Name: name, state: workstate.State{Blocker: &workstate.Blocker{Cause: workstate.WaitsForWork}}, Cause: workstate.WaitsForWork, Message: message, waitsFor: others}
	}
	lines := []WorkLine{
		waits("for-another", "Waits for work db is not ready", "db", "cache"),
		waits("for-none", "Waits for work db is not ready; work cache is not on this cluster", "db", "cache"),
		waits("for-blocked", "Waits for work blocked is not applied", "blocked"),
		{Cluster: "cluster1", Name: "blocked", state: workstate.State{Blocker: &workstate.Blocker{Cause: workstate.Forbidden}}},
	}
	for _, c := range []struct {
		all  bool
		want string
	}{{false, "blocked for-blocked for-none "}, {true, "blocked for-another for-blocked for-none "}} {
		got := ""
		for _, l := range attention(lines, c.all) {
			got += l.Name + " "
		}
		if got != c.want {
			t.Errorf("all %t: %s, want %s", c.all, got, c.want)
		}
	}
}

// TestAttentionOfADeletion: a deletion that waits for objects that the agent does not name needs attention like any other.
func TestAttentionOfADeletion(t *testing.T) {
	now := metav1.Now()
	w := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "web", DeletionTimestamp: &now}}
	status := condition.DeletingStatus(workv1.ManifestWorkStatus{}, 1, func(workv1.ManifestResourceMeta) condition.Presence { return condition.Unresolved }, now)
	condition.AddHeld(&status, nil, 2)
	w.Status = status
	line := NewWorkLine(&w, explain.Explain(workstate.Facts{Now: now.Time, Work: &w}))
	if line.Cause != workstate.WaitsForWave || len(attention([]WorkLine{line}, true)) != 1 {
		t.Errorf("%+v", line)
	}
}
