package delivery

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// one is a Works that holds a single work.
type one struct{ work *workv1.ManifestWork }

func (o one) Get(uid types.UID) (StoredWork, bool) {
	return StoredWork{Work: o.work}, uid == o.work.UID
}
func (o one) ListCluster(name wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	if string(name) != o.work.Namespace {
		return slices.Values([]*workv1.ManifestWork(nil))
	}
	return slices.Values([]*workv1.ManifestWork{o.work})
}
func (o one) Clusters() iter.Seq[wire.ClusterName] {
	return slices.Values([]wire.ClusterName{wire.ClusterName(o.work.Namespace)})
}
func (o one) UpdateStatus(context.Context, *wire.Status) error                { return nil }
func (o one) SetCondition(context.Context, types.UID, metav1.Condition) error { return nil }
func (o one) AgentAhead(types.UID, wire.Generation) bool                      { return false }
func (o one) Content(work *workv1.ManifestWork) *workv1.ManifestWork          { return work }
func (o one) Unknown(wire.SpecVersion) UnknownAction                          { return AnswerUnknown }
func (o one) WriteDelivery(context.Context, types.UID) error                  { return nil }

// FuzzReceive: every message is acknowledged once, and messages from other clusters than the work's
// do not change its state.
func FuzzReceive(f *testing.F) {
	const status = "io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request"
	const resync = "io.open-cluster-management.works.v1alpha1.manifestbundles.spec.resync_request"
	uid := string(testWork("w", 3).UID)
	f.Add("sources/hub1/clusters/cluster1/agentevents", status, uid, "3", "cluster1", "hub1", "7", "a-1", []byte(`{"conditions":[]}`))
	f.Add("sources/hub1/clusters/cluster2/agentevents", status, uid, "3", "cluster1", "hub1", "7", "a-1", []byte(`{"conditions":[{"type":"Deleted","status":"True"}]}`))
	f.Add("sources/hub1/clusters/cluster2/agentevents", resync, "", "", "cluster2", "", "", "", []byte(`{"resourceVersions":[{"resourceID":"`+uid+`","resourceVersion":9}]}`))
	f.Add("clusters/cluster1/agentbroadcast", resync, "", "", "cluster1", "", "", "", []byte(`{"resourceVersions":null}`))
	f.Add("$SYS/x", "x", "", "-1", "", "", "x", "X", []byte(`{`))
	f.Fuzz(func(t *testing.T, topic, kind, id, version, cluster, source, sequence, session string, data []byte) {
		works := one{testWork("w", 3)}
		l, err := New(Config{Source: "hub1", Transport: memory.NewBroker().Client("hub1"), Works: works,
			Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l.WorkChanged(works.work.UID)
		e := cloudevents.New()
		e.SetID("1")
		e.SetSource("agent")
		e.SetType(kind)
		for name, value := range map[string]string{"resourceid": id, "resourceversion": version, "clustername": cluster, "originalsource": source, "sequenceid": sequence, "session": session} {
			if value != "" {
				e.SetExtension(name, value)
			}
		}
		_ = e.SetData("application/json", data)
		acks := 0
		l.receive(t.Context(), transport.Message{Topic: topic, Event: e, Ack: func() { acks++ }})
		if acks != 1 {
			t.Fatalf("acknowledged %d times", acks)
		}
		_, from, _ := wire.TopicSender(topic)
		if known := l.core.works[keyOf(works.work)]; from != "cluster1" && (known.confirmed != 0 || known.sequences != (Sequences{}) || l.StatusesPending() != 0) {
			t.Fatalf("a message from %q changed %+v", from, known)
		}
	})
}

// FuzzUntrusted: of the events that can be made of a signed status by changing an extension, the data
// or the topic, none counts.
func FuzzUntrusted(f *testing.F) {
	key, err := signing.NewKey()
	kit.NoError(f, err)
	private, err := key.PEM()
	kit.NoError(f, err)
	dir := f.TempDir()
	kit.NoError(f, os.WriteFile(dir+"/signing.key", private, 0o600))
	trusted, err := signing.FormatTrustedKeys(signing.TrustedKey{PublicKey: key.Public(), Clusters: []wire.ClusterName{"cluster1"}})
	kit.NoError(f, err)
	kit.NoError(f, os.WriteFile(dir+"/agents.yaml", trusted, 0o600))
	agents, err := signing.OpenTrustedAgents(signing.TrustedAgentsConfig{Files: []string{dir + "/agents.yaml"}})
	kit.NoError(f, err)
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: dir + "/signing.key"})
	kit.NoError(f, err)
	works := one{testWork("w", 3)}
	topic := "sources/hub1/clusters/cluster1/agentevents"
	f.Add(topic, "resourceversion", "2", []byte(nil))
	f.Add(topic, "signature", "", []byte(nil))
	f.Add(topic, "signature", "v1:0000000000000000:1:", []byte(nil))
	f.Add(topic, "x", "y", []byte(`{"conditions":[{"type":"Complete","status":"True"}]}`))
	f.Add("sources/hub1/clusters/cluster2/agentevents", "clustername", "cluster2", []byte(nil))
	f.Fuzz(func(t *testing.T, topic, name, value string, data []byte) {
		l, err := New(Config{Source: "hub1", Transport: memory.NewBroker().Client("hub1"), Works: works, TrustedAgents: agents,
			Topics: wire.Topics{SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents"},
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		l.WorkChanged(works.work.UID)
		e, err := wire.Encode(&wire.Status{UID: works.work.UID, Generation: 3, Source: "hub1", Cluster: "cluster1", Agent: "a", Session: "s", Sequence: 7,
			Action: wire.Update}, time.Now())
		if err != nil || signer.SignStatus(&e) != nil {
			t.Fatal("the status cannot be signed")
		}
		changed := e.Clone()
		if changed.Context.SetExtension(name, value) != nil {
			return
		}
		if data != nil {
			_ = changed.SetData("application/json", data)
		}
		signature, err := wire.SignatureOf(changed)
		same := err == nil && topic == "sources/hub1/clusters/cluster1/agentevents" &&
			string(wire.SignedBytes(changed, signature.KeyID, signature.Time)) == string(wire.SignedBytes(e, signature.KeyID, signature.Time)) &&
			changed.Extensions()["signature"] == e.Extensions()["signature"]
		l.receive(t.Context(), transport.Message{Topic: topic, Event: changed, Ack: func() {}})
		known := l.core.works[keyOf(works.work)]
		if !same && (known.confirmed != 0 || known.signed != 0 || known.sequences != (Sequences{}) || l.StatusesPending() != 0) {
			t.Fatalf("%s = %q on topic %q changed %+v", name, value, topic, known)
		}
	})
}
