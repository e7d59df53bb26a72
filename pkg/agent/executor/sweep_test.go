package executor

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestSweepKeepsWhatIsNeeded looks at what is held, which nothing else shows.
func TestSweepKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	config := dynamic.ConfigFor(&rest.Config{Host: "https://cluster.example.com"})
	config.GroupVersion = &schema.GroupVersion{}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config[string]{Client: client, Changed: func(string) {}})
	account := Account{"a", "x"}
	e.Follow("work", nil, &account)
	now := time.Now()
	old, fresh := question{owned: true}, question{}
	used, unused := matter{role, named("a", "used")}, matter{role, named("a", "unused")}
	e.keep(account, old, answer{binds: unused, verdict: verdict{denied: "get"}}, now.Add(-deniedFor))
	e.keep(account, fresh, answer{binds: used}, now)
	e.changed([]matter{{group, named("", "nobody")}}, false)
	e.touched[matter{group, named("", "long ago")}] = now.Add(-touchedFor - time.Second)

	e.sweep(now)
	f := e.followed[account]
	if _, ok := f.answers[fresh]; !ok || len(f.answers) != 1 {
		t.Errorf("answers %v", f.answers)
	}
	if _, ok := e.listeners[used]; !ok || len(f.matters) != 5 || len(e.listeners) != 5 {
		t.Errorf("listens to %v", e.listeners)
	}
	if len(e.touched) != 1 {
		t.Errorf("touched %v", e.touched)
	}

	e.Follow("work", &account, nil)
	if len(e.listeners)+len(e.followed)+len(e.pending) != 0 {
		t.Errorf("left: %v, %v, %v", e.listeners, e.followed, e.pending)
	}
}
