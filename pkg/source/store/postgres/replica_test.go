package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/postgres"
	"github.com/workwire/workwire/pkg/source/store/storetest"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/postgreskit"
)

// TestReplicas runs the tests of several clients on one database, on one server.
func TestReplicas(t *testing.T) {
	server := postgreskit.Start(t)
	for name, test := range map[string]func(*testing.T, *postgreskit.Server, string){
		"Shared": testShared, "Lease": testLease, "Two": testTwo, "Hangs": testHangs,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, server, server.Database(t)) })
	}
}

func newStore(t testing.TB, url string) *postgres.Store {
	return postgres.New(postgres.Config{URL: url, Logger: kit.Logger(t)})
}

func opened(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s := newStore(t, url)
	_, err := s.Open(t.Context(), storetest.Source, store.Header{Identity: "i", Version: 100}, func(store.Record) error { return nil })
	kit.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// write stores a record, and returns its version.
func write(t testing.TB, s *postgres.Store, after int64, r store.Record) (int64, error) {
	t.Helper()
	var version int64
	err := s.Update(t.Context(), after, func(h store.Header, _ []store.Record) (store.Header, []store.Record, error) {
		h.Version++
		version, r.Version = h.Version, h.Version
		r.UID, r.Namespace, r.Data = types.UID(r.Name), storetest.Cluster, []byte(`{}`)
		return h, []store.Record{r}, nil
	})
	return version, err
}

// testShared: what one client stores, the others read in order, and are told.
func testShared(t *testing.T, server *postgreskit.Server, database string) {
	a, b := opened(t, server.URL(database)), opened(t, server.URL(database))
	told := make(chan int64, 100)
	kit.Run(t, "follow", func(ctx context.Context) error { return b.Follow(ctx, func(version int64) { told <- version }) })
	if first := kit.Receive(t, "a first notice", told); first != 0 {
		t.Errorf("the first notice is of version %d", first)
	}
	for i, r := range []store.Record{{Name: "x"}, {Name: "y"}, {Name: "x"}, {Name: "y", Removed: true}} {
		version, err := write(t, a, 100+int64(i), r)
		kit.NoError(t, err)
		if got := kit.Receive(t, "a notice", told); got != version {
			t.Errorf("told of version %d, want %d", got, version)
		}
	}
	h, newer, err := b.Changes(t.Context(), 100)
	kit.NoError(t, err)
	if want := []store.Record{
		{UID: "x", Namespace: storetest.Cluster, Name: "x", Version: 103, Data: []byte(`{}`)},
		{UID: "y", Namespace: storetest.Cluster, Name: "y", Version: 104, Data: []byte(`{}`), Removed: true},
	}; h.Version != 104 || !reflect.DeepEqual(newer, want) {
		t.Errorf("at version %d the changes are %+v, want %+v", h.Version, newer, want)
	}
	// A writer that has not read them gets them first.
	kit.NoError(t, b.Update(t.Context(), 101, func(h store.Header, newer []store.Record) (store.Header, []store.Record, error) {
		if h.Version != 104 || len(newer) != 2 {
			t.Errorf("an update after 101 begins at %d with %d newer records", h.Version, len(newer))
		}
		return h, nil, nil
	}))
	if _, _, err := b.Changes(t.Context(), 105); !errors.Is(err, store.ErrWentBack) {
		t.Errorf("changes after a version that does not exist: %v", err)
	}
	if removed, err := b.Removed(t.Context()); err != nil || len(removed) != 1 || removed[0].Name != "y" {
		t.Errorf("removed are %v, %v", removed, err)
	}
	_, err = write(t, b, 104, store.Record{Name: "y", Removed: true, Confirmed: true})
	kit.NoError(t, err)
	if removed, err := a.Removed(t.Context()); err != nil || len(removed) != 0 {
		t.Errorf("removed and not confirmed are %v, %v", removed, err)
	}
}

// testLease: one client at a time has the lease, the next one when it is released, and who had it
// before writes nothing any more.
func testLease(t *testing.T, server *postgreskit.Server, database string) {
	a, b := opened(t, server.URL(database)), opened(t, server.URL(database))
	first, err := a.Acquire(t.Context())
	kit.NoError(t, err)
	kit.NoError(t, first.Wait(t.Context()))
	release := kit.Run(t, "hold", first.Hold)
	acquired := make(chan store.Lease, 1)
	kit.Run(t, "acquire", func(ctx context.Context) error {
		second, err := b.Acquire(ctx)
		acquired <- second
		return err
	})
	version, err := write(t, a, 100, store.Record{Name: "x"})
	kit.NoError(t, err)
	version, err = write(t, b, version, store.Record{Name: "x"}) // everybody writes
	kit.NoError(t, err)
	select {
	case <-acquired:
		t.Fatal("two clients have the lease")
	default:
	}
	release()
	second := kit.Receive(t, "the second client acquires the lease", acquired)
	kit.NoError(t, second.Wait(t.Context()))
	if _, err := write(t, a, version, store.Record{Name: "x"}); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("who had the lease before writes: %v", err)
	}
	if err := first.Hold(t.Context()); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("Hold of the former lease returns %v", err)
	}
}

// testTwo: both replicas know each other's resourceVersions, read and write, the watches of both see statuses, and when the one that
// publishes stops, the other one does.
func testTwo(t *testing.T, server *postgreskit.Server, database string) {
	broker := memory.NewBroker()
	agent := storetest.StartAgent(t, broker)
	a, stopA := storetest.StartClient(t, broker, "a", newStore(t, server.URL(database)))
	kit.True(t, "a publishes", a.Connected)
	b, stopB := storetest.StartClient(t, broker, "b", newStore(t, server.URL(database)))
	inB := b.ManifestWorks(storetest.Cluster)
	list, err := inB.List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	kit.Eventually(t, "a knows the resourceVersion that b has begun with", func() error {
		_, err := a.ManifestWorks(storetest.Cluster).List(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		return err
	})
	watching, err := inB.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	kit.NoError(t, err)
	defer watching.Stop()
	for name, client := range map[string]*source.Client{"from-a": a, "from-b": b} {
		_, err := client.ManifestWorks(storetest.Cluster).Create(t.Context(), storetest.Work(name, "one"), metav1.CreateOptions{})
		kit.NoError(t, err)
	}
	seen := map[string]bool{}
	for len(seen) < 2 {
		event := kit.Receive(t, "the watch in b sees that works are applied", watching.ResultChan())
		if work, ok := event.Object.(*workv1.ManifestWork); !ok || event.Type == watch.Error {
			t.Fatalf("the watch ends: %+v", event)
		} else if storetest.Applied(work) {
			seen[work.Name] = true
		}
	}
	if b.Connected() {
		t.Error("both publish")
	}
	storetest.AwaitApplied(t, a.ManifestWorks(storetest.Cluster), "from-a", "from-b")
	kit.NoError(t, storetest.Change(t.Context(), inB, "from-a", "two"))
	kit.Eventually(t, "a has what b wrote, and b its status", func() error { return sameWorks(t.Context(), a, b) })
	stopA()
	kit.NoError(t, storetest.Change(t.Context(), inB, "from-b", "three"))
	storetest.AwaitApplied(t, inB, "from-a", "from-b")
	storetest.Holds(t, agent, map[string]string{"from-a": "two", "from-b": "three"})
	stopB()
}

// sameWorks compares the works of two clients.
func sameWorks(ctx context.Context, a, b workclient.ManifestWorksGetter) error {
	var versions [2]string
	for i, client := range []workclient.ManifestWorksGetter{a, b} {
		list, err := client.ManifestWorks("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for j := range list.Items {
			if !storetest.Applied(&list.Items[j]) {
				return fmt.Errorf("work %s is not applied", list.Items[j].Name)
			}
			versions[i] += list.Items[j].Name + "@" + list.Items[j].ResourceVersion + " "
		}
	}
	if versions[0] != versions[1] {
		return fmt.Errorf("one has %s, the other one %s", versions[0], versions[1])
	}
	return nil
}

// testHangs: the network between the publisher and the database drops everything. The other replica
// takes over. The first one publishes nothing from then on, and ends when the network is back.
func testHangs(t *testing.T, server *postgreskit.Server, database string) {
	broker := memory.NewBroker()
	agent := storetest.StartAgent(t, broker)
	network := server.Proxy(t)
	hung, err := source.New(source.Config{
		SourceID: storetest.Source, Topics: storetest.Topics, Transport: broker.Client("a"), Store: newStore(t, network.URL(database)), Logger: kit.Logger(t),
	})
	kit.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- hung.Run(t.Context()) }()
	kit.True(t, "a publishes", hung.Connected)
	b, stop := storetest.StartClient(t, broker, "b", newStore(t, server.URL(database)))
	works := b.ManifestWorks(storetest.Cluster)
	_, err = works.Create(t.Context(), storetest.Work("w", "one"), metav1.CreateOptions{})
	kit.NoError(t, err)
	storetest.AwaitApplied(t, works, "w")
	network.Hang()
	kit.True(t, "b publishes", b.Connected)
	kit.NoError(t, storetest.Change(t.Context(), works, "w", "two"))
	storetest.AwaitApplied(t, works, "w")
	// The agent asks both: only b answers, since a may not publish.
	broker.Cut(storetest.Cluster)
	kit.NoError(t, storetest.Change(t.Context(), works, "w", "three"))
	broker.Restore(storetest.Cluster)
	storetest.AwaitApplied(t, works, "w")
	network.Release()
	if err := kit.Receive(t, "a ends", ended); !errors.Is(err, store.ErrLeaseLost) {
		t.Errorf("Run of the former publisher returns %v", err)
	}
	storetest.Holds(t, agent, map[string]string{"w": "three"})
	last := int64(0)
	for _, spec := range agent.Specs("") {
		if int64(spec.Generation) < last {
			t.Errorf("generation %d was published after %d", spec.Generation, last)
		}
		last = int64(spec.Generation)
	}
	stop()
}
