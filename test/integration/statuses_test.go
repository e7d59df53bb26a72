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
	"github.com/workwire/workwire/test/kit/world"
)

// agentKeys are the keys that the agents of a world sign with, and the file of trusted agents.
type agentKeys struct {
	testing.TB
	keys [2]*keys
	file string
}

func newAgentKeys(w *world.World) *agentKeys {
	w.Helper()
	k := &agentKeys{TB: w, file: filepath.Join(w.TempDir(), "trusted-agents.yaml")}
	var list []signing.TrustedKey
	for i, cluster := range w.Clusters {
		k.keys[i] = newKeys(w, w.Source)
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
func forgedStatus(w *world.World, name string, conditions ...string) transport.Message {
	w.Helper()
	work, err := w.Works(0).Get(w.Context(), name, metav1.GetOptions{})
	kit.NoError(w, err)
	var sequence wire.Sequence
	now := metav1.Now()
	s := &wire.Status{
		UID: work.UID, Generation: wire.Generation(work.Generation), Source: w.Source, Cluster: w.Clusters[0], Agent: string(w.Clusters[0]) + "-agent",
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
	return transport.Message{Topic: agentEvents(w, 0), Event: event}
}

func agentEvents(w *world.World, i int) string {
	return fmt.Sprintf("sources/%s/clusters/%s/agentevents", w.Source, w.Clusters[i])
}

// victims creates the works that are attacked, while the agent is there: finished may be deleted once
// it is complete. Then it ends the agent, deletes deleted and creates unready.
func victims(w *world.World, stopAgent func()) {
	w.Helper()
	works, zero := w.Works(0), int64(0)
	finished := w.Work(0, "finished", "1", "finished")
	finished.Spec.DeleteOption = &workv1.DeleteOption{TTLSecondsAfterFinished: &zero}
	w.Create(works, finished)
	for _, name := range []string{"kept", "deleted"} {
		w.Create(works, w.Work(0, name, "1", name))
	}
	w.Applied(works, "finished", "kept", "deleted")
	w.Update(works, w.Work(0, "kept", "2", "kept"))
	w.Applied(works, "kept")
	stopAgent()
	w.Delete(works, "deleted")
	w.Create(works, w.Work(0, "unready", "1", "unready"))
}

// allLies are forged statuses with which a hub deletes finished, forgets deleted, and goes on as if unready
// were ready.
func allLies(w *world.World) []transport.Message {
	w.Helper()
	return []transport.Message{
		forgedStatus(w, "finished", workv1.WorkApplied, workv1.WorkAvailable, workv1.WorkComplete), forgedStatus(w, "deleted", workv1.WorkDeleted),
		forgedStatus(w, "unready", workv1.WorkApplied, workv1.WorkAvailable),
	}
}

// believedWorks reports which of the lies the hub has acted on.
func believedWorks(w *world.World) (names []string) {
	w.Helper()
	for _, name := range []string{"finished", "deleted", "unready"} {
		work, err := w.Works(0).Get(w.Context(), name, metav1.GetOptions{})
		switch {
		case name == "deleted" && err != nil, name == "finished" && (err != nil || work.DeletionTimestamp != nil),
			name == "unready" && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkAvailable):
			names = append(names, name)
		}
	}
	return names
}

// ignores has a hub receive messages, and wants every one to be refused, at once.
func ignores(w *world.World, b *hostileBroker, metrics prometheus.Gatherer, messages []transport.Message) {
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
	if believed := believedWorks(w); len(believed) > 0 {
		w.Errorf("the hub has believed what was said of %v", believed)
	}
}

// statusForgeries are what the owner of the broker can make without the key of cluster 0: lies, and old
// statuses again, as its own and as those of cluster 1.
func statusForgeries(w *world.World, k *agentKeys, recorded []transport.Message) []transport.Message {
	w.Helper()
	lies := allLies(w)
	all := slices.Concat(lies, recorded)
	resigned := func(e *cloudevents.Event) { kit.NoError(w, k.signer(1, 0).SignStatus(e)) }
	all = append(all, changed(slices.Concat(lies, recorded), resigned)...)
	all = append(all, changed(lies, func(e *cloudevents.Event) { e.SetExtension("signature", recorded[0].Event.Extensions()["signature"]) })...)
	all = append(all, changed(recorded, func(e *cloudevents.Event) { e.SetExtension("resourceversion", "2") })...)
	for _, m := range slices.Concat(lies, recorded) {
		all = append(all, transport.Message{Topic: agentEvents(w, 1), Event: m.Event})
	}
	return all
}

// TestHostileBrokerStatuses: with trusted agents, forged, replayed and misdirected statuses have a hub do
// nothing, also after it was restarted. Without, it acts on them: the control run.
func TestHostileBrokerStatuses(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newAgentKeys(w)
	clusters := workclient.NewForConfigOrDie(hubPlane.REST()).ClusterV1().ManagedClusters()
	_, err := clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: string(w.Clusters[0])},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	start := func(greeting []transport.Message) (*hostileBroker, prometheus.Gatherer, func()) {
		b := &hostileBroker{greeting: greeting, Transport: w.Transport(string(w.Source), string(w.Source)+"-hub", w.Topics)}
		h := w.StartHub(k.trusts, func(c *hub.Config) { c.Transport = b })
		return b, h.Metrics, h.Stop
	}
	b, metrics, stop := start(nil)
	victims(w, w.StartAgent(0, k.signs(0)).Stop)
	kept, err := w.Works(0).Get(t.Context(), "kept", metav1.GetOptions{})
	kit.NoError(t, err)
	recorded := statusesOf(b.seen(), kept)
	forgeries := statusForgeries(w, k, recorded)
	ignores(w, b, metrics, forgeries)
	kit.Eventually(t, "the ManagedCluster shows that statuses are forged", func() error {
		cluster, err := clusters.Get(t.Context(), string(w.Clusters[0]), metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionStatusesTrusted) {
			err = fmt.Errorf("it has %+v", cluster.Status.Conditions)
		}
		return err
	})

	// The next hub process remembers nothing of what its predecessor has received. What the agent itself
	// may have signed before it started is not believed either.
	stop()
	signedBefore := changed(slices.Concat(allLies(w), recorded), func(e *cloudevents.Event) { kit.NoError(t, k.signer(0, 5*time.Minute).SignStatus(e)) })
	greeting := slices.Concat(signedBefore, allLies(w))
	b, metrics, _ = start(greeting)
	kit.True(t, "the hub refuses the replayed and forged statuses", func() bool {
		return int(kit.Gather(t, metrics).Sum("workwire_source_untrusted_statuses_total")) == len(greeting)
	})
	ignores(w, b, metrics, greeting)

	w.StartAgent(0, k.signs(0))
	w.Applied(w.Works(0), "unready", "finished", "kept")
	w.Gone(w.Works(0), "deleted")
	w.Holds(0, map[string]string{"kept": "2", "finished": "1", "unready": "1"})
}

// TestHostileBrokerUnsignedStatuses is the control run of TestHostileBrokerStatuses. The agent signs, and
// nobody checks.
func TestHostileBrokerUnsignedStatuses(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newAgentKeys(w)
	b := &hostileBroker{Transport: w.Transport(string(w.Source), string(w.Source)+"-hub", w.Topics)}
	w.StartHub(func(c *hub.Config) { c.Transport = b })
	victims(w, w.StartAgent(0, k.signs(0)).Stop)
	b.inject(allLies(w)...)
	kit.Eventually(t, "the hub believes everything", func() error {
		if believed := believedWorks(w); len(believed) != 3 {
			return fmt.Errorf("it has believed what was said of %v", believed)
		}
		return nil
	})
}

// TestUnsignedAgent: of an agent that does not sign, a hub that trusts signed statuses only shows nothing;
// once the agent signs, its works go on.
func TestUnsignedAgent(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newAgentKeys(w)
	h := w.StartHub(k.trusts)
	stop := w.StartAgent(0).Stop
	w.Create(w.Works(0), w.Work(0, "w", "1", "c"))
	w.Holds(0, map[string]string{"c": "1"})
	kit.True(t, "the status is refused", func() bool {
		return kit.Gather(t, h.Metrics).Sum("workwire_source_untrusted_statuses_total", "reason=unsigned") > 0
	})
	var work *workv1.ManifestWork
	kit.Eventually(t, "read the work", func() (err error) {
		work, err = w.Works(0).Get(t.Context(), "w", metav1.GetOptions{})
		return err
	})
	if meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) { // False may be of another hub, which seals
		t.Errorf("the unsigned status is there: %+v", work.Status.Conditions)
	}
	stop()
	w.StartAgent(0, k.signs(0))
	w.Applied(w.Works(0), "w")
}
