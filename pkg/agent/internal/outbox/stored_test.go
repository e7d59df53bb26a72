package outbox_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// kept runs test with a store in dir, and ends the store after it.
func kept(t *testing.T, dir string, test func(*statestore.Store)) {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	kit.NoError(t, err)
	defer kit.Run(t, "the store", func(ctx context.Context) error { return store.Run(ctx, s) })()
	test(s)
}

func with(s *statestore.Store) func(*outbox.Config) { return func(c *outbox.Config) { c.Store = s } }

func anyWork(inbox.Key, wire.Generation) bool { return true }

// TestStatusesOutliveTheAgent: what the broker took is not sent again, what it did not take is, unless a later spec is held, and
// the sequence goes on although the clock went back.
func TestStatusesOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	var last wire.SequenceID
	synctest.Test(t, func(t *testing.T) {
		kept(t, dir, func(s *statestore.Store) {
			r := start(t, &broker{}, with(s))
			r.Set(key("sent"), status(1, "up"))
			r.Set(key("changed"), status(1, "up"))
			r.Set(key("gone"), status(1, "up"))
			r.Set(key("forgotten"), status(1, "up"))
			r.Set(key("earlier"), status(1, "up"))
			synctest.Wait()
			for _, s := range r.broker.took() {
				last = max(last, s.Sequence)
			}
			r.Set(key("gone"), final(1))
			r.Forget(key("forgotten"))
			synctest.Wait()
			r.broker.took()
			r.Lost()
			r.Set(key("changed"), status(2, "down"))
			r.Set(key("new"), status(1, "up"))
			r.Set(key("ended"), final(3))
			at := status(1, "").Status.Conditions[0].LastTransitionTime
			r.ReportDeleted(&wire.Spec{UID: "ghost", Source: "hub", Cluster: "quay", Generation: 4, DeletionTimestamp: &at})
			r.Set(key("stray"), status(1, "up"))
			r.Set(key("earlier"), status(2, "up"))
			r.stop()
		})
	})
	synctest.Test(t, func(t *testing.T) {
		kept(t, dir, func(s *statestore.Store) {
			r := prepare(t, &broker{}, with(s), func(c *outbox.Config) {
				c.Now = func() time.Time { return time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC) }
			})
			kit.NoError(t, r.Load(func(k inbox.Key, generation wire.Generation) bool {
				return k != key("stray") && k != key("ended") && (k != key("earlier") || generation >= 3)
			}))
			want := status(1, "up")
			if got, ok := r.Last(key("sent")); !ok || !cmp.Equal(want, got) {
				t.Errorf("Last differs after a restart (-want +got):\n%s", cmp.Diff(want, got))
			}
			r.run(t)
			r.Set(key("sent"), status(1, "up"))
			r.Connected("session")
			synctest.Wait()
			taken := r.broker.took()
			slices.SortFunc(taken, func(a, b *wire.Status) int { return strings.Compare(string(a.UID), string(b.UID)) })
			if got, want := summary(taken), "changed@2 down; ended@3 was Deleted; ghost@4 Deleted; new@1 up"; got != want {
				t.Errorf("after the restart the broker took %q, want %q", got, want)
			}
			for _, s := range taken {
				if s.Sequence <= last {
					t.Errorf("sequence id %d of %s is not after %d", s.Sequence, s.UID, last)
				}
			}
			if !slices.Equal(r.done, []inbox.Key{key("ended")}) {
				t.Errorf("done are %v", r.done)
			}
			r.Resync(&wire.StatusResync{Source: "hub", Hashes: []wire.StatusVersion{{UID: "sent", Hash: hashOf(t, status(1, "up"))}, {UID: "earlier", Hash: "another"}}})
			r.took(t, "")
			r.stop()
		})
	})
	synctest.Test(t, func(t *testing.T) {
		kept(t, dir, func(s *statestore.Store) {
			r := prepare(t, &broker{}, with(s))
			kit.NoError(t, r.Load(anyWork))
			if stats := r.Stats(); r.Works() != 3 || stats.Pending != 0 {
				t.Errorf("at the end Stats = %+v, want the 3 works sent, changed and new", stats)
			}
		})
	})
}

func hashOf(t *testing.T, s outbox.Status) string {
	t.Helper()
	hash, err := wire.StatusHash(&s.Status)
	kit.NoError(t, err)
	return hash
}

func TestLoadLeavesOutWhatItCanNotRead(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, func(s *statestore.Store) {
		for record, text := range map[string]string{
			"hub\x00a": "no JSON",
			"hub\x00b": `{"source":"hub","uid":"b"}`,
			"hub\x00c": `{"source":"hub","uid":"other","cluster":"quay","version":{"hash":"h"}}`,
			"hub\x00d": `{"source":"hub","uid":"d","cluster":"quay","version":{"hash":"h"}}`,
		} {
			s.Put(store.Statuses, record, func() ([]byte, error) { return []byte(text), nil })
			s.Put(store.Acked, record, func() ([]byte, error) { return []byte(`{"hash":""}`), nil })
		}
	})
	kept(t, dir, func(s *statestore.Store) {
		r := prepare(t, &broker{}, with(s))
		kit.NoError(t, r.Load(anyWork))
		if stats := r.Stats(); r.Works() != 1 || stats.Pending != 1 {
			t.Errorf("Stats = %+v", stats)
		}
		if lines := strings.Count(r.log.String(), "cannot be read"); lines != 7 {
			t.Errorf("the log has %d lines, want 7:\n%s", lines, r.log)
		}
	})
}
