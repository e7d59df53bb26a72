package executor

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/test/kit"
)

// TestSweepKeepsWhatIsNeeded looks at what is held, which nothing else shows.
func TestSweepKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	client := kit.RESTClient(t, &rest.Config{Host: "https://cluster.example.com"})
	e, err := New(Config[string]{Client: client, Changed: func(string) {}})
	kit.NoError(t, err)
	account := Account{"a", "x"}
	e.Follow("work", nil, &account)
	now := time.Now()
	old, fresh := query{owned: true}, query{}
	used, unused := dependency{role, named("a", "used")}, dependency{role, named("a", "unused")}
	e.store(account, old, cachedDecision{role: unused, decision: decision{denied: "get"}}, now.Add(-deniedFor))
	e.store(account, fresh, cachedDecision{role: used}, now)
	e.changed([]dependency{{group, named("", "nobody")}}, false)
	e.changedAt[dependency{group, named("", "long ago")}] = now.Add(-changeRetention - time.Second)

	e.sweep(now)
	state := e.accounts[account]
	if _, ok := state.decisions[fresh]; !ok || len(state.decisions) != 1 {
		t.Errorf("decisions %v", state.decisions)
	}
	if _, ok := e.dependents[used]; !ok || len(state.dependencies) != 5 || len(e.dependents) != 5 {
		t.Errorf("depends on %v", e.dependents)
	}
	if len(e.changedAt) != 1 {
		t.Errorf("changes %v", e.changedAt)
	}

	e.Follow("work", &account, nil)
	if len(e.dependents)+len(e.accounts) != 0 {
		t.Errorf("left: %v, %v", e.dependents, e.accounts)
	}
}
