package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

func TestFinalStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(_ int, s *wire.Status) error {
			if len(s.Status.Conditions) > 1 {
				<-release
			}
			return nil
		}})
		r.Set(key("a"), status(2, "up"))
		synctest.Wait()
		r.Set(key("a"), final(2))
		r.Set(key("a"), status(3, "late")) // from before the deletion
		synctest.Wait()
		if len(r.done) != 0 {
			t.Error("the work is done before the broker has taken its final status")
		}
		close(release)
		taken := r.took(t, "a@2 up; a@2 was Deleted")
		if meta := taken[1].Meta; meta.Finalizers != nil || meta.Name != "lamp" {
			t.Errorf("the final status has metadata %+v", meta)
		}
		if !slices.Equal(r.done, []inbox.Key{key("a")}) {
			t.Errorf("done are %v", r.done)
		}
		if _, ok := r.Last(key("a")); ok || r.Works() != 0 {
			t.Error("the work is still held")
		}
		// The same UID can come again: some sources derive it from the name.
		r.Set(key("a"), status(1, "again"))
		r.took(t, "a@1 again")
	})
}

// TestWorkIsHeldUntilDone: until the agent has forgotten a work its last status is final, and a
// work that comes again at that moment is reported.
func TestWorkIsHeldUntilDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		calls := 0
		r = start(t, &broker{}, func(c *outbox.Config) {
			c.Done = func(k inbox.Key) {
				calls++
				if last, ok := r.Last(k); !ok || !last.Final {
					t.Errorf("before the work is forgotten its last status is %+v", last)
				}
				if calls == 2 {
					r.Set(k, status(1, "again"))
				}
			}
		})
		r.Set(key("a"), final(2))
		r.took(t, "a@2 was Deleted")
		if _, ok := r.Last(key("a")); ok || r.Works() != 0 {
			t.Error("the work is held for ever")
		}
		r.Set(key("a"), final(3))
		r.took(t, "a@3 was Deleted; a@1 again")
		if _, ok := r.Last(key("a")); !ok || calls != 2 || r.Works() != 1 {
			t.Errorf("the work that came again is not held, after %d calls", calls)
		}
	})
}

func TestAnswerForAnUnknownWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		at := metav1.Now()
		in := &wire.Spec{UID: "ghost", Source: "hub", Cluster: "quay", Generation: 4, Action: wire.Delete,
			Meta: metav1.ObjectMeta{Name: "ghost", Namespace: "quay", UID: "ghost"}, NoMetadata: true, DeletionTimestamp: &at}
		r.ReportDeleted(in)
		got := r.took(t, "ghost@4 Deleted")[0]
		c := got.Status.Conditions[0]
		if c.Status != metav1.ConditionTrue || c.Reason != "ManifestsDeleted" || c.Message != "The manifests are deleted from the cluster quay" {
			t.Errorf("the condition is %+v", c)
		}
		if got.Meta.DeletionTimestamp == nil || got.Meta.Finalizers != nil || got.Meta.Labels[workv1.OriginalSourceLabelKey] != "hub" {
			t.Errorf("the metadata is %+v", got.Meta)
		}
		if len(r.done) != 0 || r.Works() != 0 {
			t.Errorf("done are %v, works %d", r.done, r.Works())
		}
		r.ReportDeleted(in) // each deletion is answered
		r.took(t, "ghost@4 Deleted")

		// A work of that UID that comes meanwhile is reported all the same.
		r.Lost()
		r.ReportDeleted(in)
		r.Set(key("ghost"), status(5, "up"))
		r.Connected("session")
		r.took(t, "ghost@5 up")
	})
}

func TestNewWorkWhileAnAnswerIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(int, *wire.Status) error { <-release; return nil }})
		at := metav1.Now()
		r.ReportDeleted(&wire.Spec{UID: "a", Source: "hub", Cluster: "quay", Generation: 4, DeletionTimestamp: &at})
		synctest.Wait()
		r.Set(key("a"), status(5, "up"))
		close(release)
		r.took(t, "a@4 Deleted; a@5 up")
		if len(r.done) != 0 || r.Works() != 1 {
			t.Errorf("done are %v, works %d", r.done, r.Works())
		}
	})
}

// TestForgetAtOnce: a work may be forgotten at any moment of a publish. The race detector sees it if the
// publish reads what Forget writes.
func TestForgetAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		for i := range 300 {
			k := key(fmt.Sprint(i))
			r.Set(k, status(1, "up"))
			for range i % 7 * 100 {
				r.Stats() // passes some microseconds
			}
			r.Forget(k)
		}
		synctest.Wait()
		if stats := r.Stats(); r.Works() != 0 || stats.Pending != 0 {
			t.Errorf("Stats = %+v", stats)
		}
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, &broker{answer: func(_ int, s *wire.Status) error {
			if s.UID == "flying" || s.UID == "back" {
				<-release
			}
			if s.UID == "rested" {
				return transport.ErrNotAuthorized
			}
			return nil
		}})
		for _, name := range []string{"flying", "back", "rested"} {
			r.Set(key(name), status(1, "up"))
		}
		synctest.Wait()
		r.Lost()
		r.Set(key("queued"), status(1, "up"))
		r.Set(key("flying"), status(2, "never"))
		for _, name := range []string{"flying", "back", "rested", "queued", "unknown"} {
			r.Forget(key(name))
			if _, ok := r.Last(key(name)); ok {
				t.Errorf("%s has a last status", name)
			}
		}
		r.Set(key("back"), status(3, "again"))
		r.Connected("session")
		close(release)
		synctest.Wait()
		pass(time.Hour)
		synctest.Wait()
		taken := r.broker.took()
		slices.SortFunc(taken, func(a, b *wire.Status) int {
			return strings.Compare(summary([]*wire.Status{a}), summary([]*wire.Status{b}))
		})
		if got := summary(taken); got != "back@1 up; back@3 again; flying@1 up" {
			t.Errorf("the broker took %q", got)
		}
		if stats := r.Stats(); r.Works() != 1 || stats.Pending != 0 || r.broker.doubled {
			t.Errorf("Stats = %+v, two at once: %v", stats, r.broker.doubled)
		}
	})
}

func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{})
		foe := inbox.Key{Source: "foe", UID: "a"}
		r.Set(key("a"), status(1, "up"))
		r.Set(key("b"), status(1, "up"))
		r.Set(foe, status(1, "secret"))
		synctest.Wait()
		r.broker.took()
		hash := hashOf(t, status(1, "up"))
		ask := func(source wire.SourceID, have ...wire.StatusVersion) {
			r.Resync(&wire.StatusResync{Source: source, Cluster: "quay", Hashes: have})
		}
		ask("hub", wire.StatusVersion{UID: "a", Hash: hash}, wire.StatusVersion{UID: "b", Hash: "old"}, wire.StatusVersion{UID: "ghost", Hash: "x"})
		r.took(t, "b@1 up resync_response")
		ask("hub", wire.StatusVersion{UID: "a", Hash: hash})
		r.took(t, "")
		ask("nobody")
		ask("nobody", wire.StatusVersion{UID: "a", Hash: "x"})
		r.took(t, "")
		ask("foe")
		r.took(t, "a@1 secret resync_response")
		ask("hub")
		synctest.Wait()
		if taken := r.broker.took(); len(taken) != 2 || taken[0].Source != "hub" || taken[1].Source != "hub" || taken[0].UID == taken[1].UID {
			t.Errorf("the broker took %q", summary(taken))
		}
		// What is pending anyway goes once, and a change after the answer goes too.
		r.Lost()
		r.Set(key("a"), status(2, "new"))
		ask("hub", wire.StatusVersion{UID: "a", Hash: hash})
		r.Connected("session")
		r.took(t, "a@2 new resync_response")
		r.Set(key("a"), status(2, "newer"))
		r.took(t, "a@2 newer")
	})
}

func TestResyncWhileUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers []error
		release := make(chan struct{})
		r := start(t, &broker{answer: func(n int, _ *wire.Status) error {
			<-release
			if n < len(answers) {
				return answers[n]
			}
			return nil
		}})
		r.Set(key("a"), status(1, "up"))
		synctest.Wait()
		r.Resync(&wire.StatusResync{Source: "hub"})
		release <- struct{}{}
		r.took(t, "a@1 up") // it was on its way: once is enough
		if stats := r.Stats(); r.InFlight() != 0 || stats.Pending != 0 {
			t.Errorf("it is sent again: Stats = %+v", stats)
		}
		r.Resync(&wire.StatusResync{Source: "hub"})
		synctest.Wait()
		r.Set(key("a"), status(1, "down"))
		r.Resync(&wire.StatusResync{Source: "hub"})
		close(release)
		r.took(t, "a@1 up resync_response; a@1 down resync_response")

		// An answer that is lost is still owed.
		answers = []error{nil, nil, nil, transport.ErrNotConnected}
		r.Resync(&wire.StatusResync{Source: "hub"})
		r.took(t, "")
		r.Connected("session")
		r.took(t, "a@1 down resync_response")
	})
}

func TestFlushAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &broker{answer: func(int, *wire.Status) error { <-time.After(100 * time.Millisecond); return nil }})
		r.SetLimits(2, 3*time.Second)
		for i := range 10 {
			r.Set(key(fmt.Sprint(i)), status(1, "up"))
		}
		begin := time.Now()
		r.stop()
		if got := len(r.broker.took()); got != 10 {
			t.Errorf("%d of 10 were sent before the end", got)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := &hanging{}
		r := prepare(t, nil, func(c *outbox.Config) { c.Publisher = hang })
		r.run(t)
		r.Connected("session")
		r.Set(key("a"), status(1, "up"))
		synctest.Wait()
		begin := time.Now()
		r.stop()
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the end took %v, want the 3s of Flush", took)
		}
		if !strings.Contains(r.log.String(), "before all statuses are sent") || !strings.Contains(r.log.String(), "count=1") {
			t.Errorf("the log says\n%s", r.log)
		}
		if hang.calls != 1 {
			t.Errorf("%d publishes", hang.calls)
		}
	})
}

// hanging never answers.
type hanging struct{ calls int }

func (h *hanging) Publish(ctx context.Context, _ string, _ cloudevents.Event) error {
	h.calls++
	<-ctx.Done()
	return ctx.Err()
}

func TestEndWithoutConnectionIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, &broker{})
		r.run(t)
		r.Set(key("a"), status(1, "up"))
		synctest.Wait()
		begin := time.Now()
		r.stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end took %v", took)
		}
	})
}
