package reconcile

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
	"github.com/workwire/workwire/test/kit"
)

func TestWithheldPresence(t *testing.T) {
	account, undecided := executor.Account{Namespace: "ns", Name: "e"}, errors.New("undecided")
	for name, c := range map[string]struct {
		rec  reconciliation
		err  error
		want condition.Presence
		read error
	}{
		"denied":               {reconciliation{account: &account}, &executor.DeniedError{Verb: "get"}, condition.Forbidden, nil},
		"not known":            {reconciliation{account: &account}, undecided, condition.Unreadable, undecided},
		"not known, new spec":  {reconciliation{account: &account, changed: true}, undecided, condition.Undecided, undecided},
		"no such account":      {reconciliation{accountErr: undecided}, undecided, condition.Forbidden, nil},
		"no account, new spec": {reconciliation{accountErr: undecided, changed: true}, undecided, condition.Forbidden, nil},
	} {
		if got, err := c.rec.withheldPresence(c.err); got != c.want || !errors.Is(err, c.read) {
			t.Errorf("%s: presence %d, %v", name, got, err)
		}
	}
}

// What is withheld shows nowhere, whatever is known of it.
func TestWithheldIsNotUsed(t *testing.T) {
	withheld := &executor.DeniedError{Verb: "get"}
	rec := &reconciliation{
		subject: subject{entry: &entry{}}, account: &executor.Account{}, withheld: []error{withheld, nil},
		manifests: []strategy.Manifest{{Ref: object.Ref{Name: "a"}}, {Ref: object.Ref{Name: "b"}}},
		outcomes:  make([]apply.Outcome, 2),
	}
	for i := range rec.outcomes {
		rec.outcomes[i] = apply.Outcome{Err: errors.New("the object has a secret"), Live: &unstructured.Unstructured{}}
	}
	if rec.live(0) != nil || !errors.Is(rec.applyError(0), withheld) {
		t.Errorf("live %v, error %v", rec.live(0), rec.applyError(0))
	}
	if rec.live(1) == nil || errors.Is(rec.applyError(1), withheld) {
		t.Errorf("of the other: live %v, error %v", rec.live(1), rec.applyError(1))
	}
	if rec.missed(map[object.Ref]string{{Name: "a"}: "1"}) {
		t.Error("an event of what is withheld is missed")
	}
}

// A denial that cost a request waits before it costs another; one from the cache does not.
func TestDeniedWritesWait(t *testing.T) {
	for requests, waits := range []bool{false, true} {
		rec := &reconciliation{
			subject: subject{entry: &entry{}, logger: slog.New(slog.DiscardHandler)}, manifests: make([]strategy.Manifest, 1),
			outcomes: []apply.Outcome{{Err: &executor.DeniedError{Verb: "update"}, Requests: requests}},
		}
		rec.noteFailure(0, time.Now())
		if got := rec.history().failures[0].wait(time.Now()) > 0; got != waits {
			t.Errorf("%d requests: it waits %t, want %t", requests, got, waits)
		}
	}
}

// While the API server does not say what the executor may, a deletion asks once and not for each
// object, and what was reported stays.
func TestRemovingAsksOnceAfterAFailure(t *testing.T) {
	asked := 0
	config := kit.Intercept(&rest.Config{Host: "https://cluster.example.com"}, func(http.RoundTripper, *http.Request) (*http.Response, error) {
		asked++
		return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody}, nil
	})
	executors, err := executor.New(executor.Config[string]{Client: kit.RESTClient(t, config), Changed: func(string) {}})
	kit.NoError(t, err)
	r := &Reconciler{Config: Config{Executors: executors}}
	work := &inbox.Entry{Spec: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "ns", Name: "e"},
	}}}}
	var recheck time.Duration
	presence := r.removingPresence(t.Context(), work, &recheck)
	for _, name := range []string{"a", "b", "c"} {
		if got, live := presence(object.Ref{Name: name}); got != condition.Unresolved || live != nil {
			t.Errorf("%s: presence %d", name, got)
		}
	}
	if asked != 1 {
		t.Errorf("%d requests, want 1", asked)
	}
}
