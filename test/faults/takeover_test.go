package faults

import (
	"bufio"
	"flag"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
	"github.com/workwire/workwire/test/kit/wirekit"
	kitworld "github.com/workwire/workwire/test/kit/world"
)

// fewWorks is enough works for TestTakeover.
const fewWorks = 60

var takeoverWorks = flag.Int("takeover-works", fewWorks, "works of TestTakeover; with more than 60, a standby that is up to date is timed, too")

// takeover is two hubs, of which one leads, a broker, and scripted agents.
type takeover struct {
	*kitworld.Processes
	lease  string // namespace of the Lease
	agents []*wirekit.Agent
	client workclientv1.WorkV1Interface

	mu   sync.Mutex
	uids map[string]types.UID // guarded by mu: of all works, by name
}

// TestTakeover kills the leading hub amid writes. The other one acts on all that was written before
// its term, also when it could not read the API until then: nothing is published at an older
// generation, nothing is deleted that nobody deleted, and the works keep their UIDs.
func TestTakeover(t *testing.T) {
	t.Run("a standby that is up to date", func(t *testing.T) {
		if *takeoverWorks == fewWorks {
			t.Skip("runs with -takeover-works: the other standby has all that it has, and more to catch up with")
		}
		newTakeover(t).run(false)
	})
	t.Run("a standby that was cut off from the API", func(t *testing.T) { newTakeover(t).run(true) })
}

func newTakeover(t *testing.T) *takeover {
	t.Helper()
	o := kitworld.Options{Hub: hubPlane, Source: source}
	for range max(2, *takeoverWorks/500) {
		o.Clusters = append(o.Clusters, wire.ClusterName(kit.Unique("takeover")))
	}
	w := &takeover{Processes: kitworld.New(t, o).Processes(programs), lease: hubPlane.Namespace(t, "lease"), uids: make(map[string]types.UID)}
	w.client = w.Client().WorkV1()
	w.StartBroker()
	for _, cluster := range w.Clusters {
		w.agents = append(w.agents, w.StartScripted(cluster, func(c *wirekit.AgentConfig) { c.Topics = w.Broker.Transport(string(cluster)).Topics }))
	}
	return w
}

// startHub starts a replica.
func (w *takeover) startHub(name, kubeconfig string) *process.Process {
	w.Helper()
	return w.StartHub(name, "--kubeconfig="+kubeconfig, "--disable-leader-election=false", "--leader-election-namespace="+w.lease)
}

// throughProxy returns a kubeconfig of the hub's API behind a proxy.
func (w *takeover) throughProxy() (*transporttest.Proxy, string) {
	w.Helper()
	config, err := clientcmd.LoadFromFile(hubPlane.Kubeconfig)
	kit.NoError(w, err)
	var proxy *transporttest.Proxy
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		kit.NoError(w, err)
		proxy = transporttest.StartProxy(w, server.Host)
		server.Host = proxy.Addr
		cluster.Server = server.String()
	}
	file := filepath.Join(w.Dir, "proxied.kubeconfig")
	kit.NoError(w, clientcmd.WriteToFile(*config, file))
	return proxy, file
}

func (w *takeover) run(cut bool) {
	first := w.startHub("first", hubPlane.Kubeconfig)
	w.ready(first)
	started := time.Now()
	w.parallel(*takeoverWorks, func(i int) error { return w.create(i) })
	w.reported(*takeoverWorks)
	w.Logf("%d works were created and reported after %v", *takeoverWorks, time.Since(started).Round(time.Millisecond))
	proxy, kubeconfig := w.throughProxy()
	second := w.startHub("second", kubeconfig)
	w.ready(second)
	kit.Within(w, kit.Patience, "the standby holds all works", func() error { // the metric may be a moment behind
		if held := int(w.metrics(second).Sum("workwire_hub_works")); held < *takeoverWorks {
			return fmt.Errorf("it holds %d", held)
		}
		return nil
	})
	if w.metrics(second).Sum("workwire_source_connected") != 0 {
		w.Errorf("the standby is connected to the broker")
	}
	w.Logf("memory of the leader %d MiB, of the standby %d MiB", rss(first)>>20, rss(second)>>20)
	if cut {
		proxy.Cut()
	}

	w.parallel(30, w.change)
	killed := time.Now()
	kit.NoError(w, first.Kill())
	last := *takeoverWorks
	kit.NoError(w, w.create(last))
	if cut { // until the standby may lead at once
		w.expired()
		proxy.Restore()
	}
	w.agents[last%len(w.Clusters)].Await(w, "the spec of a work that was created after the kill", func(s *wire.Spec) bool {
		return s.UID == w.uid(last)
	})
	w.Logf("%v from the kill to the publish; memory of the new leader %d MiB", time.Since(killed).Round(time.Millisecond), rss(second)>>20)
	w.Logf("its caches were current %.3f s after its term began", w.metrics(second).Sum("workwire_hub_catch_up_seconds"))
	w.order(second)
	w.reported(*takeoverWorks + 1) // ten were deleted, and ten created
	w.Logf("all works were reported %v after the kill", time.Since(killed).Round(time.Millisecond))
	w.compare()
	w.end()
}

// end deletes all works, as the other tests of the package do.
func (w *takeover) end() {
	w.Helper()
	for _, cluster := range w.Clusters {
		kit.NoError(w, w.client.ManifestWorks(string(cluster)).DeleteCollection(w.Context(), deleted, metav1.ListOptions{}))
	}
	kit.Within(w, 10*time.Minute, "all works are gone", func() error {
		for work, err := range w.all() {
			if err == nil {
				err = fmt.Errorf("%s/%s is not", work.Namespace, work.Name)
			}
			return err
		}
		return nil
	})
}

func (w *takeover) works(i int) (workclientv1.ManifestWorkInterface, string) {
	return w.client.ManifestWorks(string(w.Clusters[i%len(w.Clusters)])), fmt.Sprintf("work-%d", i)
}

func (w *takeover) uid(i int) types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uids[fmt.Sprintf("work-%d", i)]
}

func (w *takeover) create(i int) error {
	works, name := w.works(i)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	work.Spec.Workload.Manifests = []workv1.Manifest{manifest("1")}
	created, err := works.Create(w.Context(), work, create)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uids[name] = created.UID
	return nil
}

func manifest(value string) workv1.Manifest {
	var m workv1.Manifest
	m.Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"a"},"data":{"k":%q}}`, value)
	return m
}

// change updates the works 0 to 9 twice, deletes those from 10 to 19, and creates ten more.
func (w *takeover) change(i int) error {
	works, name := w.works(i)
	switch {
	case i < 10:
		for _, value := range []string{"2", "3"} {
			patch := fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, manifest(value).Raw)
			if _, err := works.Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	case i < 20:
		return works.Delete(w.Context(), name, deleted)
	default:
		return w.create(*takeoverWorks + 1 + i)
	}
}

// parallel calls f for 0 to n-1, by 16 clients.
func (w *takeover) parallel(n int, f func(i int) error) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	kit.NoError(w, group.Wait())
}

// reported waits until n works exist, all with a status of their generation.
func (w *takeover) reported(n int) {
	w.Helper()
	kit.Within(w, 10*time.Minute, fmt.Sprintf("%d works are reported", n), func() error {
		count := 0
		for work, err := range w.all() {
			if err != nil {
				return err
			}
			applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			if applied == nil || applied.ObservedGeneration != work.Generation || work.DeletionTimestamp != nil {
				return fmt.Errorf("%s/%s is not", work.Namespace, work.Name)
			}
			count++
		}
		if count != n {
			return fmt.Errorf("there are %d", count)
		}
		return nil
	})
}

// all returns all works of the test's clusters.
func (w *takeover) all() iter.Seq2[*workv1.ManifestWork, error] {
	return func(yield func(*workv1.ManifestWork, error) bool) {
		for _, cluster := range w.Clusters {
			list, err := w.client.ManifestWorks(string(cluster)).List(w.Context(), metav1.ListOptions{})
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list.Items {
				if !yield(&list.Items[i], nil) {
					return
				}
			}
		}
	}
}

// compare fails the test unless all works are as they were last written, under their UIDs, and the
// agents have received no generation after a later one, and no deletion of a work that nobody
// deleted.
func (w *takeover) compare() {
	w.Helper()
	for work, err := range w.all() {
		kit.NoError(w, err)
		if work.UID != w.uids[work.Name] {
			w.Errorf("%s has another UID", work.Name)
		}
		delete(w.uids, work.Name)
	}
	ended := make(map[types.UID]bool)
	for name, uid := range w.uids {
		i := 0
		if _, err := fmt.Sscanf(name, "work-%d", &i); err != nil || i < 10 || i > 19 {
			w.Errorf("%s is gone", name)
		}
		ended[uid] = true
	}
	for _, agent := range w.agents {
		generations := make(map[types.UID]wire.Generation)
		for _, spec := range agent.Specs("") {
			if spec.Generation < generations[spec.UID] {
				w.Errorf("%s was published at generation %d after %d", spec.Meta.Name, spec.Generation, generations[spec.UID])
			}
			if spec.IsDeletion() && !ended[spec.UID] {
				w.Errorf("the deletion of %s was published", spec.Meta.Name)
			}
			generations[spec.UID] = max(generations[spec.UID], spec.Generation)
		}
		for uid := range agent.Holds() {
			if ended[uid] {
				w.Errorf("the agent holds the deleted work %s", uid)
			}
		}
	}
}

// expired waits until the Lease has expired.
func (w *takeover) expired() {
	w.Helper()
	leases := kubernetes.NewForConfigOrDie(hubPlane.REST()).CoordinationV1().Leases(w.lease)
	kit.Eventually(w, "the Lease expires", func() error {
		lease, err := leases.Get(w.Context(), "work-hub-"+source, metav1.GetOptions{})
		if err != nil {
			return err
		}
		expires := lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
		if left := time.Until(expires); left > 0 {
			return fmt.Errorf("%v is left", left)
		}
		return nil
	})
}

// ready waits until a hub is ready.
func (w *takeover) ready(hub *process.Process) {
	w.Helper()
	kit.Within(w, 2*time.Minute, "/readyz passes", func() error {
		_, err := w.Get(hub, "/readyz")
		return err
	})
}

func (w *takeover) metrics(hub *process.Process) kit.Metrics {
	w.Helper()
	metrics, err := w.Metrics(hub)
	kit.NoError(w, err)
	return metrics
}

// order checks the order of what the new leader has logged.
func (w *takeover) order(p *process.Process) {
	w.Helper()
	file, err := os.Open(p.Log)
	kit.NoError(w, err)
	defer func() { _ = file.Close() }()
	want := []string{`msg=leading `, `msg="caches are current" `, `msg="caches synced, connecting to the broker" `, `msg="connected to the broker" `}
	var seen []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		for _, message := range want {
			if strings.Contains(lines.Text(), message) {
				seen = append(seen, message)
			}
		}
	}
	if !slices.Equal(seen, want) {
		w.Errorf("the new leader logged %q, want %q", seen, want)
	}
}

// rss returns the memory of a process in bytes; 0 where the system does not say.
func rss(p *process.Process) int64 {
	usage, _ := procs.Of(p.PID())
	return usage.RSS
}
