package delivery_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// send has the source receive m from the agent of a cluster.
func (b *harness) send(cluster wire.ClusterName, m wire.Message) {
	b.t.Helper()
	event, err := wire.Encode(m, time.Now())
	kit.NoError(b.t, err)
	delivery.Receive(b.engine, transport.Message{Topic: fmt.Sprintf("sources/hub1/clusters/%s/agentevents", cluster), Event: event, Ack: func() {}})
}

// strangers sends whatever an agent can say, as n clusters that the source has no works for.
func (b *harness) strangers(n int) {
	b.t.Helper()
	for i := range n {
		cluster := wire.ClusterName(fmt.Sprint("stranger", i))
		b.send(cluster, &wire.SpecResync{Agent: "a", Cluster: cluster, Source: "hub1", Versions: []wire.SpecVersion{
			{UID: "one", Generation: 1}, {UID: types.UID(fmt.Sprint("two", i)), Generation: 7}, {UID: "probe", Probe: true},
		}})
		b.send(cluster, &wire.Digest{Agent: "a", Cluster: cluster, Source: "hub1", Buckets: []wire.BucketDigest{{Works: 7}}})
		b.send(cluster, &wire.Presence{Agent: "a", Cluster: cluster, Source: "hub1", Session: "s", Present: true})
		b.send(cluster, &wire.Status{UID: "one", Generation: 1, Source: "hub1", Cluster: cluster, Agent: "a", Sequence: 5,
			Meta: metav1.ObjectMeta{Name: "one", Namespace: string(cluster)}, Action: wire.Update})
	}
	synctest.Wait()
}

// TestStrangersLeaveNothing: what clusters ask and report that are not accepted, or that the source
// has no works for, is not kept.
func TestStrangersLeaveNothing(t *testing.T) {
	const strangers = 10_000
	for name, state := range map[string]delivery.ClusterState{"not accepted": delivery.ClusterPaused, "accepted": delivery.ClusterOpen} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Int64
			config := delivery.Config{
				Clusters: state, Logger: slog.New(slog.DiscardHandler),
				Observe: on(func(delivery.UnknownWorks) { told.Add(1) }),
			}
			withHarness(t, config, func(b *harness) {
				b.tap.discard = true
				b.engine.SetCluster("cluster1", delivery.ClusterOpen)
				b.start()
				b.store.put(newWork("cluster1", "w"))
				synctest.Wait()
				before := delivery.KeptOf(b.engine)
				b.strangers(100) // pools and buckets of maps
				heap := liveHeap()
				b.strangers(strangers)
				time.Sleep(2 * time.Minute) // until their quotas are full again
				b.strangers(1)
				if after := delivery.KeptOf(b.engine); after != before {
					t.Errorf("after the strangers %+v is kept, before %+v", after, before)
				}
				if grown := liveHeap() - heap; grown > strangers*100 {
					t.Errorf("%d strangers left %d bytes", strangers, grown)
				}
				if want := map[delivery.ClusterState]int64{delivery.ClusterOpen: 101 + strangers}[state]; told.Load() != want {
					t.Errorf("%d UnknownWorks, want %d", told.Load(), want)
				}
			})
		})
	}
}

// liveHeap returns the size of what is reachable.
func liveHeap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestPausedQuestion: the question of a cluster that is not accepted is answered about the works
// that the source has, and the rest once the cluster is accepted.
func TestPausedQuestion(t *testing.T) {
	withHarness(t, delivery.Config{Clusters: delivery.ClusterPaused}, func(b *harness) {
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		question := &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Versions: []wire.SpecVersion{{UID: "stray", Generation: 2}}}
		b.send("cluster1", question)
		synctest.Wait()
		if kept := delivery.KeptOf(b.engine); kept.Works != 1 {
			t.Errorf("%d works are kept, want the one of the source", kept.Works)
		}
		b.published(uid, 0)
		asked := len(b.tap.asks())
		b.engine.SetCluster("cluster1", delivery.ClusterOpen)
		b.published(uid, 1)
		b.published("stray", 0)
		if asks := b.tap.asks()[asked:]; len(asks) != 1 || asks[0].Reply {
			t.Errorf("the agent was not asked for its question: %+v", asks)
		}
		b.send("cluster1", question)
		b.published("stray", 1)
	})
}

// TestQuestionsArePaced: a cluster that asks for everything again and again is answered some times at once,
// and then at a bounded rate, its last question too. Others do not wait for it.
func TestQuestionsArePaced(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.start()
		b.store.put(newWork("cluster1", "w"))
		b.store.put(newWork("cluster2", "w"))
		synctest.Wait()
		question := func(cluster wire.ClusterName) {
			b.send(cluster, &wire.SpecResync{Agent: "a", Cluster: cluster, Source: "hub1"})
			synctest.Wait()
		}
		answers := func() int { return int(b.metric("workwire_source_resync_answers_total", "answer=sent")) }
		for range 1000 {
			question("cluster1")
		}
		if n := answers(); n != delivery.QuestionBurst {
			t.Errorf("%d of 1,000 questions were answered at once, want %d", n, delivery.QuestionBurst)
		}
		before := answers()
		question("cluster2")
		if answers() != before+1 {
			t.Error("another cluster waits")
		}
		const minutes = 10
		for range minutes * 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			question("cluster1")
		}
		if n := answers() - before - 1; n > minutes*60/2+1 || n < minutes*60/8 {
			t.Errorf("%d answers in %d minutes", n, minutes)
		}
		time.Sleep(time.Minute) // the last one is answered, too
		before = answers()
		time.Sleep(time.Minute)
		if answers() != before || b.metric("workwire_source_questions_paced_total") == 0 {
			t.Errorf("%d answers, later %d", before, answers())
		}
	})
}

// TestEndlessQuestion: a question naming far more works than a source answers at a time is answered
// in parts, and one that is longer than any is refused before it costs anything.
func TestEndlessQuestion(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.tap.fail = func(wire.Message) error { return errBroken }
		b.start()
		question := &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1"}
		for i := range 2 * delivery.MaxUnknown {
			question.Versions = append(question.Versions, wire.SpecVersion{UID: types.UID(fmt.Sprint(i)), Generation: 1})
		}
		for range 3 {
			b.send("cluster1", question)
			synctest.Wait()
		}
		if kept := delivery.KeptOf(b.engine); kept.Works != delivery.MaxUnknown {
			t.Errorf("%d works are kept, want %d", kept.Works, delivery.MaxUnknown)
		}
		if n := b.metric("workwire_source_resync_answers_total", "answer=postponed"); n != 3*delivery.MaxUnknown {
			t.Errorf("%v deletions were postponed, want %d", n, 3*delivery.MaxUnknown)
		}
		for len(question.Versions) <= wire.MaxResyncEntries+2 {
			question.Versions = append(question.Versions, question.Versions...)
		}
		b.send("cluster1", question)
		synctest.Wait()
		if n := b.metric("workwire_source_received_total", "verdict=undecodable"); n != 1 {
			t.Errorf("%v messages were refused, want the endless list", n)
		}
	})
}

// TestForgedSequence: a number that no clock shows is refused, and one that is ahead of the clock
// does not shut out the agent's statuses, with sessions and without.
func TestForgedSequence(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		time.Sleep(11 * 365 * 24 * time.Hour) // ids begin in 2010
		sequence, ahead := &wire.Sequence{}, wire.SequenceID(1<<62)
		send := func(session string, id wire.SequenceID, message string) {
			t.Helper()
			status := &wire.Status{UID: uid, Generation: 1, Source: "hub1", Cluster: "cluster1", Agent: "a", Sequence: id, Session: session, Action: wire.Update,
				Meta:   metav1.ObjectMeta{Name: "w", Namespace: "cluster1"},
				Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{Type: "Told", Status: metav1.ConditionTrue, Message: message}}}}
			b.send("cluster1", status)
			synctest.Wait()
		}
		taken := func(message string) {
			t.Helper()
			if got := b.store.get(uid).Status.Conditions; len(got) != 1 || got[0].Message != message {
				t.Fatalf("the status is %v, want %q", got, message)
			}
		}
		for _, session := range []string{"", "s"} {
			send(session, sequence.Next(time.Now()), session+"first")
			taken(session + "first")
			send(session, 1<<63-1, "no clock")
			taken(session + "first")
			send(session, ahead, "ahead")
			send(session, sequence.Next(time.Now()), session+"second")
			taken(session + "second")
			ahead++
		}
		if n := b.metric("workwire_source_received_total", "message=status", "verdict=far_ahead"); n != 2 {
			t.Errorf("%v statuses were refused as far ahead, want 2", n)
		}
		// An agent whose clock is wrong is heard, in its order.
		b.store.change(uid, bump)
		wrong := &wire.Sequence{}
		last := wire.SequenceID(0)
		for i := range 3 {
			last = wrong.Next(time.Now().Add(30 * 365 * 24 * time.Hour))
			send("wrong", last, fmt.Sprint("wrong", i))
			taken(fmt.Sprint("wrong", i))
		}
		send("wrong", last-1, "late")
		taken("wrong2")
	})
}
