package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// agentKeys are the keys that the agents of a world sign with, and the file of trusted agents.
type agentKeys struct {
	*testing.T
	keys [2]*keys
	file string
}

func (w *world) newAgentKeys() *agentKeys {
	w.Helper()
	k := &agentKeys{T: w.T, file: filepath.Join(w.TempDir(), "trusted-agents.yaml")}
	var list []signing.TrustedKey
	for i, cluster := range w.clusters {
		k.keys[i] = newKeys(w.T, w.source)
		data, err := os.ReadFile(k.keys[i].key)
		kit.NoError(w, err)
		key, err := signing.ParseKey(data)
		kit.NoError(w, err)
		list = append(list, signing.TrustedKey{PublicKey: key.Public(), Clusters: []wire.ClusterName{cluster}})
	}
	data, err := signing.FormatTrustedKeys(list...)
	kit.NoError(w, err)
	kit.NoError(w, os.WriteFile(k.file, data, 0o600))
	return k
}

// open returns the trusted agents.
func (k *agentKeys) open() *signing.TrustedAgents {
	k.Helper()
	trusted, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{k.file}, Logger: kit.Logger(k)})
	kit.NoError(k, err)
	return trusted
}

// trusts makes a hub believe signed statuses only.
func (k *agentKeys) trusts(c *hub.Config) { c.TrustedAgents = k.open() }

// signer returns what signs for cluster i, with a clock that is behind.
func (k *agentKeys) signer(i int, behind time.Duration) *signing.Signer {
	k.Helper()
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: k.keys[i].key, Now: func() time.Time { return time.Now().Add(-behind) }, Logger: kit.Logger(k)})
	kit.NoError(k, err)
	return signer
}

// signs makes the agent of cluster i sign its statuses.
func (k *agentKeys) signs(i int) func(*agent.Config) {
	return func(c *agent.Config) {
		c.Sign, c.SyncInterval, c.DigestInterval = k.signer(i, 0).SignStatus, time.Second, time.Second
	}
}

// statusesOf returns the statuses of generation 1 of a work that a hub was sent.
func statusesOf(messages []transport.Message, work *workv1.ManifestWork) []transport.Message {
	return slices.DeleteFunc(messages, func(m transport.Message) bool {
		message, err := wire.Decode(m.Event)
		s, ok := message.(*wire.Status)
		return err != nil || !ok || s.UID != work.UID || s.Generation != 1
	})
}

// forgedStatus is what the owner of a broker can say of a work of cluster 0.
func (w *world) forgedStatus(name string, conditions ...string) transport.Message {
	w.Helper()
	work, err := w.works(0).Get(w.Context(), name, metav1.GetOptions{})
	kit.NoError(w, err)
	var sequence wire.Sequence
	now := metav1.Now()
	s := &wire.Status{
		UID: work.UID, Generation: wire.Generation(work.Generation), Source: w.source, Cluster: w.clusters[0], Agent: string(w.clusters[0]) + "-agent",
		Action: wire.Update, Sequence: sequence.Next(time.Now()), Session: kit.Unique("forged"),
		Meta: metav1.ObjectMeta{Name: name, Namespace: work.Namespace, UID: work.UID, DeletionTimestamp: work.DeletionTimestamp},
	}
	for _, c := range conditions {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: c, Status: metav1.ConditionTrue, Reason: "Forged", ObservedGeneration: work.Generation, LastTransitionTime: now,
		})
	}
	event, err := wire.Encode(s, time.Now())
	kit.NoError(w, err)
	return transport.Message{Topic: w.agentEvents(0), Event: event}
}

func (w *world) agentEvents(i int) string {
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", w.source, w.clusters[i])
}

// victims creates the works that are attacked, while the agent is there: finished may be deleted once
// it is complete. Then it ends the agent, deletes deleted and creates unready.
func (w *world) victims(stopAgent func()) {
	w.Helper()
	works, zero := w.works(0), int64(0)
	finished := w.work(0, "finished", "1", "finished")
	finished.Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: &zero}
	w.create(works, finished)
	for _, name := range []string{"kept", "deleted"} {
		w.create(works, w.work(0, name, "1", name))
	}
	w.applied(works, "finished", "kept", "deleted")
	w.update(works, w.work(0, "kept", "2", "kept"))
	w.applied(works, "kept")
	stopAgent()
	w.delete(works, "deleted")
	w.create(works, w.work(0, "unready", "1", "unready"))
}

// lies are forged statuses with which a hub deletes finished, forgets deleted, and goes on as if unready
// were ready.
func (w *world) lies() []transport.Message {
	w.Helper()
	return []transport.Message{
		w.forgedStatus("finished", workv1.WorkApplied, workv1.WorkAvailable, workv1.WorkComplete), w.forgedStatus("deleted", workv1.WorkDeleted),
		w.forgedStatus("unready", workv1.WorkApplied, workv1.WorkAvailable),
	}
}

// believed reports which of the lies the hub has acted on.
func (w *world) believed() (names []string) {
	w.Helper()
	for _, name := range []string{"finished", "deleted", "unready"} {
		work, err := w.works(0).Get(w.Context(), name, metav1.GetOptions{})
		switch {
		case name == "deleted" && err != nil, name == "finished" && (err != nil || work.DeletionTimestamp != nil),
			name == "unready" && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkAvailable):
			names = append(names, name)
		}
	}
	return names
}

// ignores has a hub receive messages, and wants every one to be refused, at once.
func (w *world) ignores(b *hostileBroker, metrics prometheus.Gatherer, messages []transport.Message) {
	w.Helper()
	count := func() (refused, accepted float64) {
		gathered := kit.Gather(w, metrics)
		return gathered.Sum("workwire_source_untrusted_statuses_total"), gathered.Sum("workwire_source_received_total", "message=status") -
			gathered.Sum("workwire_source_received_total", "message=status", "verdict=untrusted")
	}
	refused, accepted := count()
	b.inject(messages...)
	if afterRefused, afterAccepted := count(); int(afterRefused-refused) != len(messages) || afterAccepted != accepted {
		w.Errorf("of %d messages %v were refused and %v accepted", len(messages), afterRefused-refused, afterAccepted-accepted)
	}
	if believed := w.believed(); len(believed) > 0 {
		w.Errorf("the hub has believed what was said of %v", believed)
	}
}

// statusForgeries are what the owner of the broker can make without the key of cluster 0: lies, and old
// statuses again, as its own and as those of cluster 1.
func (w *world) statusForgeries(k *agentKeys, recorded []transport.Message) []transport.Message {
	w.Helper()
	lies := w.lies()
	all := slices.Concat(lies, recorded)
	resigned := func(e *cloudevents.Event) { kit.NoError(w, k.signer(1, 0).SignStatus(e)) }
	all = append(all, changed(slices.Concat(lies, recorded), resigned)...)
	all = append(all, changed(lies, func(e *cloudevents.Event) { e.SetExtension("signature", recorded[0].Event.Extensions()["signature"]) })...)
	all = append(all, changed(recorded, func(e *cloudevents.Event) { e.SetExtension("resourceversion", "2") })...)
	for _, m := range slices.Concat(lies, recorded) {
		all = append(all, transport.Message{Topic: w.agentEvents(1), Event: m.Event})
	}
	return all
}

// TestHostileBrokerStatuses: with trusted agents, forged, replayed and misdirected statuses have a hub do
// nothing, also after it was restarted. Without, it acts on them: the control run.
func TestHostileBrokerStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker = startBroker(w, w.users)
	k := w.newAgentKeys()
	clusters := workclient.NewForConfigOrDie(hubPlane.REST()).ClusterV1().ManagedClusters()
	_, err := clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: string(w.clusters[0])},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	start := func(greeting []transport.Message) (*hostileBroker, prometheus.Gatherer, func()) {
		registry := prometheus.NewRegistry()
		b := &hostileBroker{greeting: greeting, Transport: w.transport(string(w.source), string(w.source)+"-hub", topicsOf(string(w.source)))}
		return b, registry, w.hub(k.trusts, func(c *hub.Config) { c.Transport, c.Registerer = b, registry })
	}
	b, metrics, stop := start(nil)
	w.victims(w.agent(0, topicsOf(string(w.source)), k.signs(0)))
	kept, err := w.works(0).Get(t.Context(), "kept", metav1.GetOptions{})
	kit.NoError(t, err)
	recorded := statusesOf(b.seen(), kept)
	forgeries := w.statusForgeries(k, recorded)
	w.ignores(b, metrics, forgeries)
	kit.Eventually(t, "the ManagedCluster shows that statuses are forged", func() error {
		cluster, err := clusters.Get(t.Context(), string(w.clusters[0]), metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionStatusesTrusted) {
			err = fmt.Errorf("it has %+v", cluster.Status.Conditions)
		}
		return err
	})

	// The next hub process remembers nothing of what its predecessor has received. What the agent itself
	// may have signed before it started is not believed either.
	stop()
	signedBefore := changed(slices.Concat(w.lies(), recorded), func(e *cloudevents.Event) { kit.NoError(t, k.signer(0, 5*time.Minute).SignStatus(e)) })
	greeting := slices.Concat(signedBefore, w.lies())
	b, metrics, _ = start(greeting)
	kit.True(t, "the hub refuses the replayed and forged statuses", func() bool {
		return int(kit.Gather(t, metrics).Sum("workwire_source_untrusted_statuses_total")) == len(greeting)
	})
	w.ignores(b, metrics, greeting)

	w.agent(0, topicsOf(string(w.source)), k.signs(0))
	w.applied(w.works(0), "unready", "finished", "kept")
	w.gone(w.works(0), "deleted")
	w.holds(0, map[string]string{"kept": "2", "finished": "1", "unready": "1"})
}

// TestHostileBrokerUnsignedStatuses is the control run of TestHostileBrokerStatuses. The agent signs, and
// nobody checks.
func TestHostileBrokerUnsignedStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker = startBroker(w, w.users)
	k := w.newAgentKeys()
	b := &hostileBroker{Transport: w.transport(string(w.source), string(w.source)+"-hub", topicsOf(string(w.source)))}
	w.hub(func(c *hub.Config) { c.Transport = b })
	w.victims(w.agent(0, topicsOf(string(w.source)), k.signs(0)))
	b.inject(w.lies()...)
	kit.Eventually(t, "the hub believes everything", func() error {
		if believed := w.believed(); len(believed) != 3 {
			return fmt.Errorf("it has believed what was said of %v", believed)
		}
		return nil
	})
}

// TestUnsignedAgent: of an agent that does not sign, a hub that trusts signed statuses only shows nothing;
// once the agent signs, its works go on.
func TestUnsignedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker = startBroker(w, w.users)
	k, registry := w.newAgentKeys(), prometheus.NewRegistry()
	w.hub(k.trusts, func(c *hub.Config) { c.Registerer = registry })
	stop := w.agent(0, topicsOf(string(w.source)))
	w.create(w.works(0), w.work(0, "w", "1", "c"))
	w.holds(0, map[string]string{"c": "1"})
	kit.True(t, "the status is refused", func() bool {
		return kit.Gather(t, registry).Sum("workwire_source_untrusted_statuses_total", "reason=unsigned") > 0
	})
	var work *workv1.ManifestWork
	kit.Eventually(t, "read the work", func() (err error) {
		work, err = w.works(0).Get(t.Context(), "w", metav1.GetOptions{})
		return err
	})
	if meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied) != nil {
		t.Errorf("the unsigned status is there: %+v", work.Status.Conditions)
	}
	stop()
	w.agent(0, topicsOf(string(w.source)), k.signs(0))
	w.applied(w.works(0), "w")
}
