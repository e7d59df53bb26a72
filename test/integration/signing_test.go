package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// keys are the signing key of a source and the keys that agents trust, in files.
type keys struct {
	testing.TB
	key, trusted string
}

// newKeys returns the keys of some sources.
func newKeys(t testing.TB, sources ...wire.SourceID) *keys {
	t.Helper()
	dir := t.TempDir()
	k := &keys{t, filepath.Join(dir, "signing.key"), filepath.Join(dir, "trusted-keys.yaml")}
	k.write(k.trusted, k.trust(sources, k.use(k.make())))
	return k
}

func (k *keys) make() *signing.Key {
	k.Helper()
	key, err := signing.NewKey()
	kit.NoError(k, err)
	return key
}

// use makes key the signing key.
func (k *keys) use(key *signing.Key) *signing.Key {
	k.Helper()
	data, err := key.PEM()
	kit.NoError(k, err)
	k.write(k.key, data)
	return key
}

// trust returns a file of trusted keys.
func (k *keys) trust(sources []wire.SourceID, list ...*signing.Key) []byte {
	k.Helper()
	var trusted []signing.TrustedKey
	for _, key := range list {
		trusted = append(trusted, signing.TrustedKey{PublicKey: key.Public(), Sources: sources})
	}
	data, err := signing.FormatTrustedKeys(trusted...)
	kit.NoError(k, err)
	return data
}

func (k *keys) write(path string, data []byte) {
	k.Helper()
	kit.NoError(k, os.WriteFile(path, data, 0o600))
}

func (k *keys) sign() func(*cloudevents.Event) error {
	k.Helper()
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: k.key, Logger: kit.Logger(k)})
	kit.NoError(k, err)
	return signer.Sign
}

// signs makes a hub sign.
func (k *keys) signs(c *hub.Config) { c.Sign = k.sign() }

// trusts makes an agent believe what is signed, and repeat its questions soon.
func (k *keys) trusts(c *agent.Config) {
	k.Helper()
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: k.trusted, Logger: kit.Logger(k)})
	kit.NoError(k, err)
	c.TrustedKeys, c.SyncInterval, c.DigestInterval = trusted, time.Second, time.Second
}

// hostileBroker is the link of an agent in the hands of the owner of the broker.
type hostileBroker struct {
	transport.Transport

	mu       sync.Mutex
	receive  func(transport.Message)
	recorded []transport.Message
	drop     func(wire.Message) bool
	greeting []transport.Message // delivered before anything else
}

func (b *hostileBroker) Run(ctx context.Context, h transport.Handler) error {
	// It waits until the message is handled, so that what it has caused can be counted.
	receive := func(ctx context.Context, m transport.Message) {
		handled, ack := make(chan struct{}), m.Ack
		m.Ack = sync.OnceFunc(func() {
			ack()
			close(handled)
		})
		h.Received(ctx, m)
		select {
		case <-handled:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	b.receive = func(m transport.Message) { receive(ctx, m) }
	greeting := b.greeting
	b.mu.Unlock()
	b.inject(greeting...)
	deliver := h
	deliver.Received = func(ctx context.Context, m transport.Message) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.recorded = append(b.recorded, m)
		if message, err := wire.Decode(m.Event); err == nil && b.drop != nil && b.drop(message) {
			m.Ack()
			return
		}
		receive(ctx, m)
	}
	return b.Transport.Run(ctx, deliver)
}

// inject delivers messages to the agent.
func (b *hostileBroker) inject(messages ...transport.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		b.receive(transport.Message{Topic: m.Topic, Event: m.Event.Clone(), Ack: func() {}})
	}
}

// dropping makes it drop the messages for which drop returns true; nil: none.
func (b *hostileBroker) dropping(drop func(wire.Message) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop = drop
}

// seen returns what the agent was sent.
func (b *hostileBroker) seen() []transport.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.recorded)
}

// changed returns copies of messages, each changed.
func changed(messages []transport.Message, change func(*cloudevents.Event)) []transport.Message {
	var list []transport.Message
	for _, m := range messages {
		e := m.Event.Clone()
		change(&e)
		list = append(list, transport.Message{Topic: m.Topic, Event: e})
	}
	return list
}

// specForgeries are what the owner of the broker can make of messages of a source: every one is refused.
func specForgeries(w *world.World, messages []transport.Message, uids []types.UID) (all []transport.Message) {
	w.Helper()
	stranger, other := newKeys(w, w.Source), newKeys(w, "other")
	set := func(name, value string) func(*cloudevents.Event) {
		return func(e *cloudevents.Event) { e.SetExtension(name, value) }
	}
	for _, change := range []func(*cloudevents.Event){
		func(e *cloudevents.Event) { e.SetExtension("signature", nil) },
		set("signature", "v1:0000000000000000:1:"),
		set("resourceversion", "999999"), set("authoritative", "yes"), set("authoritative", "true"), set("sourceidentity", "another"),
		set("resourceid", string(types.UID("11111111-1111-4111-8111-111111111111"))), set("metadata", `{"name":"evil"}`),
		set("deletiontimestamp", time.Now().Add(time.Hour).Format(time.RFC3339)), set("clustername", "somewhere"), set("contenthash", strings.Repeat("0", 64)),
		func(e *cloudevents.Event) {
			kit.NoError(w, e.SetData("application/json", []byte(`{"manifests":[{}]}`)))
		},
		func(e *cloudevents.Event) {
			kit.NoError(w, e.SetData("application/json", slices.Concat([]byte(" "), e.Data())))
		},
		func(e *cloudevents.Event) { kit.NoError(w, stranger.sign()(e)) },
		func(e *cloudevents.Event) { kit.NoError(w, other.sign()(e)) },
	} {
		all = append(all, changed(messages, change)...)
	}
	topic := fmt.Sprintf("sources/%s/clusters/%s/sourceevents", w.Source, w.Clusters[0])
	for _, uid := range append(uids, "11111111-1111-4111-8111-111111111111") {
		now, evil := metav1.Now(), w.Work(0, "evil", "evil", "evil")
		name := metav1.ObjectMeta{Name: "evil", Namespace: string(w.Clusters[0]), UID: uid}
		for _, spec := range []*wire.Spec{
			{Action: wire.Update, Meta: name, Bundle: wire.NewBundle(&evil.Spec), Generation: 1 << 40},
			{Action: wire.Delete, Meta: name, DeletionTimestamp: &now},
			{Action: wire.ResyncResponse, NoMetadata: true, DeletionTimestamp: &now},
		} {
			spec.UID, spec.Source, spec.Cluster = uid, w.Source, w.Clusters[0]
			event, err := wire.Encode(spec, time.Now())
			kit.NoError(w, err)
			all = append(all, transport.Message{Topic: topic, Event: event})
			signed := event.Clone()
			signed.SetExtension("signature", messages[0].Event.Extensions()["signature"])
			all = append(all, transport.Message{Topic: topic, Event: signed})
		}
	}
	return all
}

// signedForOthers returns events of the hub for another cluster, on the topic of this one.
func signedForOthers(w *world.World, k *keys) (all []transport.Message) {
	w.Helper()
	sign, now, evil := k.sign(), metav1.Now(), w.Work(0, "evil", "evil", "evil")
	for _, spec := range []*wire.Spec{
		{Action: wire.Create, Bundle: wire.NewBundle(&evil.Spec), Generation: 1}, {Action: wire.Delete, DeletionTimestamp: &now},
	} {
		spec.UID, spec.Source, spec.Cluster = "11111111-1111-4111-8111-111111111111", w.Source, w.Clusters[1]
		event, err := wire.Encode(spec, time.Now())
		kit.NoError(w, err)
		kit.NoError(w, sign(&event))
		all = append(all, transport.Message{Topic: fmt.Sprintf("sources/%s/clusters/%s/sourceevents", w.Source, w.Clusters[0]), Event: event})
	}
	return all
}

// hostile starts an agent whose broker is hostile, and returns that and the agent's metrics.
func hostile(w *world.World, k *keys, greeting []transport.Message, change ...func(*agent.Config)) (b *hostileBroker, metrics prometheus.Gatherer, stop func()) {
	w.Helper()
	b = &hostileBroker{greeting: greeting, Transport: w.Transport(string(w.Clusters[0]), string(w.Clusters[0])+"-agent", w.Topics)}
	a := w.StartAgent(0, append(change, k.trusts, func(c *agent.Config) { c.Transport = b })...)
	return b, a.Metrics, a.Stop
}

// refuses injects messages, and wants every one to be refused.
func refuses(w *world.World, b *hostileBroker, metrics prometheus.Gatherer, messages []transport.Message) {
	w.Helper()
	refused := func() float64 {
		gathered := kit.Gather(w, metrics)
		return gathered.Sum("workwire_agent_untrusted_events_total") + gathered.Sum("workwire_agent_specs_received_total", "verdict=ignored")
	}
	taken := func() (n float64) {
		for verdict, count := range kit.Gather(w, metrics).ByLabel("workwire_agent_specs_received_total", "verdict") {
			if verdict != "ignored" {
				n += count
			}
		}
		return n
	}
	b.mu.Lock()
	beforeRefused, beforeTaken := refused(), taken()
	for _, m := range messages {
		b.receive(transport.Message{Topic: m.Topic, Event: m.Event.Clone(), Ack: func() {}})
	}
	afterRefused, afterTaken := refused(), taken()
	b.mu.Unlock()
	if afterTaken != beforeTaken || int(afterRefused-beforeRefused) != len(messages) {
		w.Errorf("of %d messages %v were refused and %v taken", len(messages), afterRefused-beforeRefused, afterTaken-beforeTaken)
	}
}

// TestHostileBroker: the owner of a broker can drop and delay, and nothing else, if specs are signed.
func TestHostileBroker(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newKeys(t, w.Source)
	w.StartHub(k.signs)
	stateDir := t.TempDir()
	withState := func(c *agent.Config) { c.StateDir = stateDir }
	b, metrics, stop := hostile(w, k, nil, withState)
	works := w.Works(0)
	for _, name := range []string{"kept", "changed", "deleted"} {
		w.Create(works, w.Work(0, name, "1", name))
	}
	w.Applied(works, "kept", "changed", "deleted")
	w.Update(works, w.Work(0, "changed", "2", "changed"))
	w.Applied(works, "changed")
	w.Delete(works, "deleted")
	w.Gone(works, "deleted")
	want := map[string]string{"kept": "1", "changed": "2"}
	w.Holds(0, want)

	var uids []types.UID
	for _, name := range []string{"kept", "changed"} {
		work, err := works.Get(w.Context(), name, metav1.GetOptions{})
		kit.NoError(t, err)
		uids = append(uids, work.UID)
	}
	replayed := slices.DeleteFunc(b.seen(), func(m transport.Message) bool { return isAnswer(m, uids) })
	refuses(w, b, metrics, replayed)
	reversed := slices.Clone(replayed)
	slices.Reverse(reversed)
	refuses(w, b, metrics, reversed)
	refuses(w, b, metrics, specForgeries(w, replayed, uids))
	refuses(w, b, metrics, signedForOthers(w, k))
	kit.Eventually(t, "the work shows that an event of it was forged", func() error {
		work, err := works.Get(w.Context(), "kept", metav1.GetOptions{})
		if err != nil || meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkSpecUntrusted) {
			return err
		}
		return fmt.Errorf("it has %+v", work.Status.Conditions)
	})
	w.Update(works, w.Work(0, "kept", "3", "kept"))
	want["kept"] = "3"
	w.Applied(works, "kept")
	w.Holds(0, want)
	kit.Eventually(t, "the next signed spec ends the condition", func() error {
		work, err := works.Get(w.Context(), "kept", metav1.GetOptions{})
		if err == nil && meta.FindStatusCondition(work.Status.Conditions, workv1.WorkSpecUntrusted) != nil {
			err = errors.New("it has it still")
		}
		return err
	})

	// A new agent process, with and without its state, hears all of it again before anything else.
	recorded := slices.Concat(replayed, specForgeries(w, replayed, uids))
	for value, change := range map[string]func(*agent.Config){"4": withState, "5": func(*agent.Config) {}} {
		stop()
		b, metrics, stop = hostile(w, k, recorded, change)
		w.Update(works, w.Work(0, "kept", value, "kept"))
		want["kept"] = value
		w.Applied(works, "kept")
		w.Holds(0, want)
		refuses(w, b, metrics, recorded)
	}

	// Deletions that do not arrive are late, and do not come undone.
	var dropped atomic.Bool
	b.dropping(func(m wire.Message) bool {
		spec, ok := m.(*wire.Spec)
		drop := ok && spec.IsDeletion() && !spec.NoMetadata // not the answer to a question
		if drop {
			dropped.Store(true)
		}
		return drop
	})
	w.Delete(works, "changed")
	kit.True(t, "a deletion is dropped", dropped.Load)
	w.Holds(0, want)
	b.dropping(nil)
	w.Gone(works, "changed")
	delete(want, "changed")
	refuses(w, b, metrics, recorded)
	w.Delete(works, "kept")
	w.Gone(works, "kept")
	w.Holds(0, nil)
	w.NoAppliedManifestWorks(0)
}

// isAnswer reports whether m is the answer to a question of an agent: the deletion, without a name,
// of none of the works.
func isAnswer(m transport.Message, works []types.UID) bool {
	message, err := wire.Decode(m.Event)
	s, ok := message.(*wire.Spec)
	return err == nil && ok && s.NoMetadata && s.IsDeletion() && !slices.Contains(works, s.UID)
}

// TestSigned: works have their usual life while their events are signed, whoever is away meanwhile.
func TestSigned(t *testing.T) {
	for name, test := range map[string]func(*world.World, *keys) func() func(){
		"agent away": func(w *world.World, k *keys) func() func() {
			w.StartHub(k.signs)
			stop := w.StartAgent(0, k.trusts).Stop
			return func() func() {
				stop()
				return func() { w.StartAgent(0, k.trusts) }
			}
		},
		"agent with state away": func(w *world.World, k *keys) func() func() {
			w.StartHub(k.signs)
			dir := w.TempDir()
			start := func() func() {
				return w.StartAgent(0, k.trusts, func(c *agent.Config) { c.StateDir = dir }).Stop
			}
			stop := start()
			return func() func() {
				stop()
				return func() { start() }
			}
		},
		"hub away": func(w *world.World, k *keys) func() func() {
			stop := w.StartHub(k.signs).Stop
			w.StartAgent(0, k.trusts)
			return func() func() {
				stop()
				return func() { w.StartHub(k.signs) }
			}
		},
		"both halves, hub away": func(w *world.World, k *keys) func() func() {
			agents := newAgentKeys(w)
			stop := w.StartHub(k.signs, agents.trusts).Stop
			w.StartAgent(0, k.trusts, agents.signs(0))
			return func() func() {
				stop()
				return func() { w.StartHub(k.signs, agents.trusts) }
			}
		},
		"keys are rotated": func(w *world.World, k *keys) func() func() {
			w.StartHub(k.signs)
			w.StartAgent(0, k.trusts)
			return func() func() {
				next := k.use(k.make()) // before agents trust it, so that they refuse what follows
				return func() { k.write(k.trusted, k.trust([]wire.SourceID{w.Source}, next)) }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withBroker(t)
			churn(w, test(w, newKeys(t, w.Source)))
		})
	}
}

// TestSignedSDK: a source of the SDK signs, and one that does not is refused by the same agent.
func TestSignedSDK(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newKeys(t, w.Other)
	client := w.StartSDK(w.Other, func(c *source.Config) { c.Sign = k.sign() })
	w.StartHub()
	a := w.StartAgent(0, world.Serve("+"), k.trusts)
	fromHub, fromSDK := w.Works(0), client.ManifestWorks(string(w.Clusters[0]))
	w.Create(fromHub, w.Work(0, "web", "hub", "a"))
	w.Create(fromSDK, w.Work(0, "web", "sdk", "b"))
	w.Applied(fromSDK, "web")
	kit.True(t, "what the hub sends is refused", func() bool {
		return kit.Gather(t, a.Metrics).Sum("workwire_agent_untrusted_events_total", "reason=unsigned") > 0
	})
	w.Holds(0, map[string]string{"b": "sdk"})
	w.Update(fromSDK, w.Work(0, "web", "again", "b"))
	w.Applied(fromSDK, "web")
	w.Holds(0, map[string]string{"b": "again"})
	w.Delete(fromSDK, "web")
	w.Gone(fromSDK, "web")
	w.Holds(0, nil)
}

// TestFirstWorkAfterARestart: an agent that has started again believes nothing of a source of which it holds no work until that has
// answered a question; its first work makes the agent ask. A source that comes after the agent learns that it is there.
func TestFirstWorkAfterARestart(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	k := newKeys(t, w.Other)
	first := w.StartAgent(0, world.Serve("+"), k.trusts)
	kit.Eventually(t, "the agent is there before the source", first.Connected)
	sdk := w.StartSDK(w.Other, func(c *source.Config) { c.Sign = k.sign() })
	works := sdk.ManifestWorks(string(w.Clusters[0]))
	agentIs := func(want source.Presence) {
		kit.Eventually(t, "the source knows that the agent is "+string(want), func() error {
			if c, _ := sdk.Clusters().Get(w.Clusters[0]); c.Presence != want {
				return fmt.Errorf("it is %q", c.Presence)
			}
			return nil
		})
	}
	agentIs(source.PresenceConnected)
	first.Stop()
	agentIs(source.PresenceDisconnected)
	w.StartAgent(0, world.Serve("+"), k.trusts)
	agentIs(source.PresenceConnected)
	w.Create(works, w.Work(0, "web", "sdk", "a"))
	w.Applied(works, "web")
}
