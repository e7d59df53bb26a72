package sim

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// sourceProgram is the second source: a program with pkg/source, of which two replicas run.
const sourceProgram = "ops"

var (
	workKind  = kind("work.open-cluster-management.io", "v1", "manifestworks", "ManifestWork", withStatus)
	opsTopics = wire.Topics{
		SourceEvents: "sources/ops/clusters/+/sourceevents", AgentEvents: "sources/ops/clusters/+/agentevents",
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
)

// ownWorks is how many works the second source has on each cluster. Their numbers follow those of the hub's works.
const ownWorks = 3

// replicas are the programs of the second source.
type replicas struct {
	programs []*program
	vault    *vault
	names    []string // of its works

	mu      sync.Mutex
	clients map[*incarnation]*source.Client
}

func (w *World) newReplicas() *replicas {
	r := &replicas{clients: map[*incarnation]*source.Client{}, vault: newVault(func(c kubeapi.Write) {
		w.trace.write(sourceProgram, c)
		w.record.hubWrite(c)
		w.undone.hubWrite(c)
		w.holds.hubWrite(c)
	})}
	for n := range ownWorks {
		r.names = append(r.names, "work"+strconv.Itoa(w.o.Works+n))
	}
	for _, name := range []string{sourceProgram + "1", sourceProgram + "2"} {
		r.programs = append(r.programs, &program{world: w, name: name, id: name, disk: &disk{}, start: w.startSource})
	}
	return r
}

// startSource runs a replica of the second source, again each time when another one has become the leader, or the database was
// away when it needed it.
func (w *World) startSource(ctx context.Context, p *incarnation) error {
	defer w.sources.forget(p)
	for {
		client, err := w.newSource(p)
		if err != nil {
			return err
		}
		w.sources.remember(p, client)
		if err := client.Run(ctx); ctx.Err() != nil || err == nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

func (w *World) newSource(p *incarnation) (*source.Client, error) {
	c := source.Config{
		SourceID: sourceProgram, Topics: opsTopics, Transport: p.transport(nil), Logger: w.logger.With("program", p.program.name),
		Store: &storeClient{vault: w.sources.vault, ask: func(what string) (time.Duration, kubeapi.Outcome) {
			if p.dead() {
				return 0, kubeapi.Lost
			}
			return w.flaky.request(p.program.name + what)
		}},
	}
	if w.o.Keys != "" {
		signer, trusted, err := openHubKeys(w.o.Keys, c.Logger, p.program.clock.now)
		if err != nil {
			return nil, err
		}
		c.Sign, c.TrustedAgents = signer.Sign, trusted
	}
	return source.New(c)
}

func (r *replicas) remember(p *incarnation, c *source.Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[p] = c
}

func (r *replicas) forget(p *incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.clients, p)
}

// atSource has people do something with a work of the second source. It takes no time: what they ask for may have to wait.
func (w *World) atSource(do func(ctx context.Context, works workclient.ManifestWorkInterface, work *workv1.ManifestWork)) {
	c, name := w.anyCluster(), w.sources.names[w.random.intN(ownWorks)]
	p := w.sources.programs[w.random.intN(len(w.sources.programs))]
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.fill(work)
	w.sources.mu.Lock()
	client := w.sources.clients[p.running]
	w.sources.mu.Unlock()
	if client == nil {
		return
	}
	w.trace.concerns(string(c.name) + "/" + name)
	go func() {
		ctx, cancel := context.WithTimeout(background, 20*time.Second)
		defer cancel()
		do(ctx, client.ManifestWorks(string(c.name)), work)
	}()
}

// createOwn creates a work of the second source that does not exist.
func (w *World) createOwn() {
	w.atSource(func(ctx context.Context, works workclient.ManifestWorkInterface, work *workv1.ManifestWork) {
		_, _ = works.Create(ctx, work, metav1.CreateOptions{})
	})
}

func (w *World) changeOwn() {
	w.atSource(func(ctx context.Context, works workclient.ManifestWorkInterface, work *workv1.ManifestWork) {
		now, err := works.Get(ctx, work.Name, metav1.GetOptions{})
		if err == nil && now.DeletionTimestamp == nil {
			now.Spec = work.Spec
			_, _ = works.Update(ctx, now, metav1.UpdateOptions{})
		}
	})
}

func (w *World) deleteOwn() {
	w.atSource(func(ctx context.Context, works workclient.ManifestWorkInterface, work *workv1.ManifestWork) {
		_ = works.Delete(ctx, work.Name, metav1.DeleteOptions{})
	})
}

func (w *World) killSource() { w.kill(w.sources.programs[w.random.intN(len(w.sources.programs))]) }

// lacks reports whether an object is one of a work that the second source does not have.
func (r *replicas) lacks(cluster wire.ClusterName, object string) bool {
	name, _, _ := strings.Cut(object, "-")
	return slices.Contains(r.names, name) && !slices.ContainsFunc(r.vault.works(cluster), func(o *kubeapi.Object) bool { return o.GetName() == name })
}

// ownWorksOf returns the works of the second source for a cluster.
func (w *World) ownWorksOf(cluster wire.ClusterName) []workv1.ManifestWork {
	var found []workv1.ManifestWork
	for _, o := range w.sources.vault.works(cluster) {
		found = append(found, *workFrom(o))
	}
	return found
}
