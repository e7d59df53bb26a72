package delivery_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// TestLostPublish: a spec that the broker acknowledged and the agent never received is published
// again after a message from the cluster, not before, and with growing pauses.
func TestLostPublish(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		var lose atomic.Int32
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) {
			c.Lose = func(m wire.Message) bool {
				s, ok := m.(*wire.Spec)
				return ok && s.Meta.Name == "lost" && lose.Add(-1) >= 0
			}
		})
		b.start()
		other := b.store.put(newWork("cluster1", "other")).UID
		b.holds(a, other, 1)
		lose.Store(3)
		lost := b.store.put(newWork("cluster1", "lost")).UID
		time.Sleep(time.Hour)
		b.published(lost, 1) // the cluster is silent
		a.Touch(other, "alive")
		time.Sleep(29 * time.Second)
		b.published(lost, 1) // it may be about to speak of it
		time.Sleep(2 * time.Second)
		b.published(lost, 2)
		a.Touch(other, "alive still")
		time.Sleep(58 * time.Second)
		b.published(lost, 2)
		time.Sleep(2 * time.Second)
		b.published(lost, 3)
		a.Touch(other, "alive as before")
		time.Sleep(121 * time.Second)
		b.published(lost, 4)
		b.holds(a, lost, 1)
		a.Touch(other, "and on")
		time.Sleep(24 * time.Hour)
		b.published(lost, 4)
		if n := b.metric("workwire_source_republished_total"); n != 3 {
			t.Errorf("republished_total is %v, want 3", n)
		}
		if n := b.metric("workwire_source_works_unconfirmed"); n != 0 {
			t.Errorf("works_unconfirmed is %v, want 0", n)
		}
	})
}

// TestAway: without a connection changes wait, and only the newest is published.
func TestAway(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		b.broker.Cut("hub1")
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		for range 5 {
			b.store.change(uid, bump)
		}
		short := b.store.put(newWork("cluster1", "short-lived"))
		b.store.change(short.UID, doom)
		time.Sleep(time.Hour)
		if b.engine.Connected() {
			t.Error("it is connected")
		}
		b.broker.Restore("hub1")
		b.holds(a, uid, 6)
		b.published(uid, 1)
		if !b.engine.Connected() || b.metric("workwire_source_connected") != 1 {
			t.Error("it is not connected")
		}
		if specs := b.published(short.UID, 1); !specs[0].IsDeletion() {
			t.Error("a work that was deleted meanwhile was sent")
		}
		if b.store.get(short.UID) != nil {
			t.Error("the deleted work is still there")
		}
	})
}

// TestReconnect: each connect publishes the unconfirmed works again, and no others.
func TestReconnect(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) { c.KeepDeleting = true })
		b.start()
		settled := b.store.put(newWork("cluster1", "settled")).UID
		dying := b.store.put(newWork("cluster1", "dying")).UID
		b.holds(a, dying, 1)
		b.store.change(dying, doom)
		away := b.store.put(newWork("cluster2", "away")).UID
		synctest.Wait()
		b.published(dying, 2)
		b.broker.Cut("hub1")
		synctest.Wait()
		b.broker.Restore("hub1")
		b.published(settled, 1)
		b.published(away, 2)
		b.published(dying, 3) // Deleted may have been lost
		a.Finish(dying)
		synctest.Wait()
		if b.store.get(dying) != nil {
			t.Error("the deleted work is still there")
		}
	})
}

// TestPublishFails: a publish that may succeed is retried with a backoff.
func TestPublishFails(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		a := b.agent("cluster1")
		var tries atomic.Int32
		b.tap.fail = func(m wire.Message) error {
			if _, ok := m.(*wire.Spec); ok && tries.Add(1) <= 3 {
				return errBroken
			}
			return nil
		}
		b.start()
		uid := b.store.put(newWork("cluster1", "w")).UID
		synctest.Wait()
		if n := tries.Load(); n != 1 {
			t.Fatalf("%d tries at once", n)
		}
		time.Sleep(7 * time.Second) // 1 + 2 + 4
		b.holds(a, uid, 1)
		if n := b.metric("workwire_source_published_total", "result=failed"); n != 3 {
			t.Errorf("%v publishes failed, want 3", n)
		}
	})
}

// TestRoundRobin: a cluster with many works does not delay another.
func TestRoundRobin(t *testing.T) {
	withHarness(t, delivery.Config{PublishWorkers: 1}, func(b *harness) {
		for i := range 500 {
			b.store.put(newWork("busy", "w"+string(rune('a'+i%26))+strings.Repeat("x", i/26)))
		}
		b.store.put(newWork("quiet", "one"))
		b.store.put(newWork("quiet", "two"))
		b.start()
		at := slices.Index(b.tap.topics, "sources/hub1/clusters/quiet/sourceevents")
		if at < 0 || at > 20 {
			t.Errorf("the quiet cluster's turn came after %d publishes", at)
		}
		specs := len(b.tap.events) - len(b.tap.asks())
		if specs != 502 {
			t.Errorf("%d works were published, want 502", specs)
		}
	})
}

// TestParallel: publishes that hang do not delay others while workers are idle.
func TestParallel(t *testing.T) {
	withHarness(t, delivery.Config{PublishWorkers: 8}, func(b *harness) {
		hang := make(chan struct{})
		slow := &slowTransport{Transport: b.broker.Client("hub2"), hang: hang}
		shelf := b.store
		l, err := delivery.New(delivery.Config{Source: "hub1", Topics: topics, Transport: slow, Works: shelf, PublishWorkers: 8})
		if err != nil {
			t.Fatal(err)
		}
		shelf.engine = l
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			shelf.put(newWork("slow", name))
		}
		uid := shelf.put(newWork("fast", "w")).UID
		a := b.agent("fast")
		b.run("Run", l.Run)
		b.holds(a, uid, 1)
		close(hang)
	})
}

// TestLostDeletion: a lost deletion is published again like a spec.
func TestLostDeletion(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		var lose atomic.Bool
		a := b.agent("cluster1", func(c *wirekit.AgentConfig) {
			c.Lose = func(m wire.Message) bool {
				s, ok := m.(*wire.Spec)
				return ok && s.IsDeletion() && lose.Load()
			}
		})
		b.start()
		other := b.store.put(newWork("cluster1", "other")).UID
		uid := b.store.put(newWork("cluster1", "w")).UID
		b.holds(a, uid, 1)
		lose.Store(true)
		b.store.change(uid, doom)
		synctest.Wait()
		lose.Store(false)
		time.Sleep(time.Second)
		a.Touch(other, "alive")
		time.Sleep(time.Minute)
		b.holds(a, uid, 0)
		if b.store.get(uid) != nil {
			t.Error("the deleted work is still there")
		}
	})
}

// TestChangedWhilePublished: a change during a publish is published after it.
func TestChangedWhilePublished(t *testing.T) {
	withHarness(t, delivery.Config{}, func(b *harness) {
		hang := make(chan struct{})
		slow := &slowTransport{Transport: b.broker.Client("hub1"), hang: hang}
		l, err := delivery.New(delivery.Config{Source: "hub1", Topics: topics, Transport: slow, Works: b.store})
		if err != nil {
			t.Fatal(err)
		}
		b.store.engine = l
		b.run("Run", l.Run)
		a := b.agent("slow", func(c *wirekit.AgentConfig) { c.Silent = true })
		uid := b.store.put(newWork("slow", "w")).UID
		synctest.Wait()
		b.store.change(uid, bump)
		b.store.change(uid, bump)
		synctest.Wait()
		if n := len(a.Specs(uid)); n != 0 {
			t.Fatalf("%d events have got through", n)
		}
		close(hang)
		b.holds(a, uid, 3)
		if n := len(a.Specs(uid)); n != 2 {
			t.Errorf("%d events were published, want the one that was under way and the newest", n)
		}
	})
}
