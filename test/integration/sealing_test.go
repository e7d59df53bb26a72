package integration

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wiretap"
	"github.com/workwire/workwire/test/kit/world"
)

// seals are the sealing keys of clusters and the signing key of a source, in files.
type seals struct {
	*keys
	dir, unseal string
	required    []wire.ClusterName
}

// newSeals returns a key for each cluster, the same for all.
func newSeals(t testing.TB, source wire.SourceID, clusters ...wire.ClusterName) *seals {
	t.Helper()
	s := &seals{keys: newKeys(t, source), dir: t.TempDir(), unseal: filepath.Join(t.TempDir(), "unseal.key")}
	s.sealTo(s.newKey(s.unseal), clusters...)
	return s
}

// newKey writes a new private key to a file and returns its public key.
func (s *seals) newKey(path string) sealing.PublicKey {
	s.Helper()
	key, err := sealing.NewKey()
	kit.NoError(s, err)
	data, err := key.PEM()
	kit.NoError(s, err)
	s.replace(path, data)
	return key.Public()
}

// sealTo makes public the key of clusters.
func (s *seals) sealTo(public sealing.PublicKey, clusters ...wire.ClusterName) {
	s.Helper()
	for _, cluster := range clusters {
		s.replace(filepath.Join(s.dir, string(cluster)+".pub"), public.PEM())
	}
}

func (s *seals) replace(path string, data []byte) {
	s.Helper()
	s.write(path+".new", data)
	kit.NoError(s, os.Rename(path+".new", path))
}

func (s *seals) sealer() (func(*cloudevents.Event) error, *sealing.Sealer) {
	s.Helper()
	signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: s.key, Logger: kit.Logger(s)})
	kit.NoError(s, err)
	sealer, err := sealing.NewSealer(sealing.SealerConfig{
		Dir: s.dir, Required: s.required, Secret: signer.Secret, Interval: 50 * time.Millisecond, Logger: kit.Logger(s),
	})
	kit.NoError(s, err)
	return signer.Sign, sealer
}

// seals makes a hub sign and seal.
func (s *seals) seals(c *hub.Config) { c.Sign, c.Seal = s.sealer() }

// opens makes an agent open what is sealed with the key in some files, s.unseal if there are none.
func (s *seals) opens(files ...string) func(c *agent.Config) {
	s.Helper()
	if len(files) == 0 {
		files = []string{s.unseal}
	}
	unsealer, err := sealing.NewUnsealer(sealing.UnsealerConfig{Files: files, Logger: kit.Logger(s)})
	kit.NoError(s, err)
	return func(c *agent.Config) { c.Unseal, c.SyncInterval, c.DigestInterval = unsealer, time.Second, time.Second }
}

// recording is every byte between a broker and its clients.
type recording struct {
	mu    sync.Mutex
	heard bytes.Buffer
}

// record returns what is heard at an address, at which it stands before the one of a broker.
func record(t testing.TB, to string) (*recording, string) {
	t.Helper()
	heard := &recording{}
	tap, err := wiretap.Start(to, heard)
	kit.NoError(t, err)
	t.Cleanup(func() { kit.NoError(t, tap.Close()) })
	return heard, tap.Addr
}

// Write records p.
func (r *recording) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard.Write(p)
}

func (r *recording) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.heard.Bytes())
}

// holdsValue reports whether data has value, also in base64 at any alignment.
func holdsValue(data []byte, value string) bool {
	for pad := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", pad) + value))
		if bytes.Contains(data, []byte(encoded[(pad*8+5)/6:len(encoded)-4])) {
			return true
		}
	}
	return bytes.Contains(data, []byte(value))
}

// filesHold reports whether a file below dir has value.
func filesHold(t testing.TB, dir, value string) (holds bool) {
	t.Helper()
	kit.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		holds = holds || holdsValue(data, value)
		return err
	}))
	return holds
}

// secretWork returns a work with a Secret of the value for a cluster. kubectl would leave a copy of it
// in the annotation.
func secretWork(w *world.World, i int, name, value string) *workv1.ManifestWork {
	raw := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":%q},"data":{"k":%q}}`,
		name, w.Targets[i], base64.StdEncoding.EncodeToString([]byte(value)))
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: string(w.Clusters[i]), Name: name, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(raw)},
	}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}
	return work
}

// hasSecret waits until a cluster has a Secret of a value.
func hasSecret(w *world.World, i int, name, value string) {
	w.Helper()
	secrets := kubernetes.NewForConfigOrDie(w.Spokes[i].REST()).CoreV1().Secrets(w.Targets[i])
	kit.Eventually(w, "the cluster has Secret "+name, func() error {
		secret, err := secrets.Get(w.Context(), name, metav1.GetOptions{})
		if err == nil && string(secret.Data["k"]) != value {
			err = fmt.Errorf("it has %q", secret.Data["k"])
		}
		return err
	})
}

// appliedReason waits until a work has a condition Applied of a reason for its newest generation.
func appliedReason(w *world.World, works workclientv1.ManifestWorkInterface, name, reason string) {
	w.Helper()
	kit.Eventually(w, name+" has reason "+reason, func() error {
		work, err := works.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if c == nil || c.Reason != reason || c.ObservedGeneration != work.Generation {
			return fmt.Errorf("it has %+v", work.Status.Conditions)
		}
		return nil
	})
}

// TestSealedFromBroker: a Secret reaches its cluster, and neither what goes through the broker, nor the
// broker's disk, nor the agent's has it. Without sealing all three do, so the test would see it.
func TestSealedFromBroker(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"sealed": true, "in clear": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			brokerDir, stateDir := t.TempDir(), t.TempDir()
			w.StartBroker(broker.Config{DataDir: brokerDir})
			tap, address := record(t, w.Broker.Addr)
			w.Broker.Addr = address
			s := newSeals(t, w.Source)
			if sealed {
				s.sealTo(s.newKey(s.unseal), w.Clusters[0])
				s.required = []wire.ClusterName{w.Clusters[0]}
			}
			w.StartHub(s.seals)
			start := func() func() {
				return w.StartAgent(0, s.trusts, s.opens(), func(c *agent.Config) { c.StateDir = stateDir }).Stop
			}
			stop := start()
			first, second := kit.Unique("first-value-of-the-secret"), kit.Unique("second-value-of-the-secret")
			works := w.Works(0)
			w.Create(works, secretWork(w, 0, "s", first))
			w.Applied(works, "s")
			hasSecret(w, 0, "s", first)
			stop()
			late := kit.Unique("late")
			w.Create(works, secretWork(w, 0, late, second)) // the broker keeps it for the agent
			kit.True(t, "the broker has an event for the agent that is away", func() bool { return filesHold(t, brokerDir, late) })
			onDisk := filesHold(t, brokerDir, second)
			stop = start()
			w.Applied(works, late)
			hasSecret(w, 0, late, second)
			stop()
			onDisk = onDisk || sealed && filesHold(t, brokerDir, second)
			start()
			for _, name := range []string{"s", late} {
				w.Delete(works, name)
				w.Gone(works, name)
			}
			heard := tap.bytes()
			for what, has := range map[string]bool{
				"the connections":   holdsValue(heard, first) || holdsValue(heard, second),
				"the broker's disk": onDisk, "the agent's disk": filesHold(t, stateDir, first) || filesHold(t, stateDir, second),
			} {
				if has == sealed {
					t.Errorf("%s: the secret is there: %v", what, has)
				}
			}
		})
	}
}

// TestSealingKeys: the way from no key to a replaced one. Nothing goes out in clear that must not.
func TestSealingKeys(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	s := newSeals(t, w.Source)
	s.required = []wire.ClusterName{sealing.AllClusters}
	w.StartHub(s.seals)
	next := filepath.Join(t.TempDir(), "next.key")
	w.StartAgent(0, s.trusts, s.opens(s.unseal))
	works := w.Works(0)
	w.Create(works, secretWork(w, 0, "s", "one"))
	appliedReason(w, works, "s", "NoSealKey")
	s.sealTo(s.newKey(next), w.Clusters[0]) // not the one that the agent has
	appliedReason(w, works, "s", workv1.ReasonNoUnsealKey)
	data, err := os.ReadFile(next)
	kit.NoError(t, err)
	s.replace(s.unseal, data)
	w.Applied(works, "s")
	hasSecret(w, 0, "s", "one")
	w.Update(works, secretWork(w, 0, "s", "two"))
	w.Applied(works, "s")
	hasSecret(w, 0, "s", "two")
	kit.NoError(t, os.Remove(filepath.Join(s.dir, string(w.Clusters[0])+".pub")))
	w.Update(works, secretWork(w, 0, "s", "three")) // sealed to the former key
	w.Applied(works, "s")
	hasSecret(w, 0, "s", "three")
	w.Delete(works, "s")
	w.Gone(works, "s")
}

// TestSealedSDK: a source of the SDK seals for one cluster and sends another one its specs in clear.
func TestSealedSDK(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	tap, address := record(t, w.Broker.Addr)
	w.Broker.Addr = address
	s := newSeals(t, w.Other, w.Clusters[0])
	sign, seal := s.sealer()
	auditPath := filepath.Join(t.TempDir(), "audit.log")
	records, err := audit.Open(audit.Config{Path: auditPath, Program: "my-source", Logger: kit.Logger(w)})
	kit.NoError(t, err)
	kit.Run(t, "audit log", func(ctx context.Context) error { records.Run(ctx); return nil })
	client := w.StartSDK(w.Other, func(c *source.Config) { c.Sign, c.Seal, c.Audit = sign, seal, records })
	w.StartAgent(0, world.Serve(w.Other), s.trusts, s.opens())
	w.StartAgent(1, world.Serve(w.Other), s.trusts)
	value := kit.Unique("value-of-the-secret")
	for i, cluster := range w.Clusters {
		works := client.ManifestWorks(string(cluster))
		work := w.Work(i, "w", "clear", "c")
		if i == 0 {
			work = secretWork(w, i, "w", value)
		}
		w.Create(works, work)
		w.Applied(works, "w")
	}
	hasSecret(w, 0, "w", value)
	w.Holds(1, map[string]string{"c": "clear"})
	if heard := tap.bytes(); holdsValue(heard, value) || !holdsValue(heard, `"clear"`) {
		t.Error("want the secret sealed, and the other work in clear")
	}
	log, err := os.ReadFile(auditPath)
	kit.NoError(t, err)
	for _, want := range []string{
		`"program":"my-source","event":"publish","verdict":"sent"`, `"event":"receive","verdict":"accepted","identity":"` + string(w.Clusters[0]) + `"`,
	} {
		if !bytes.Contains(log, []byte(want)) {
			t.Errorf("the audit log lacks %s:\n%s", want, log)
		}
	}
	if holdsValue(log, value) {
		t.Error("the audit log has the secret")
	}
	_, err = source.New(source.Config{SourceID: w.Other, Topics: world.Topics(w.Other), Seal: seal, Transport: w.Transport(string(w.Other), "x", world.Topics(w.Other))})
	if err == nil || !strings.Contains(err.Error(), "Seal needs Sign") {
		t.Errorf("a source that seals and does not sign: %v", err)
	}
}

// swappedSpecs are sealed events whose payload is that of another work, generation or cluster.
func swappedSpecs(w *world.World, s *seals, messages []transport.Message) (all []transport.Message) {
	w.Helper()
	var sealed []transport.Message
	for _, m := range messages {
		if wire.IsSealed(m.Event.Data()) {
			sealed = append(sealed, m)
		}
	}
	payloads := [][]byte{sealedForOthers(w, s)}
	for _, m := range sealed {
		payloads = append(payloads, m.Event.Data())
	}
	for _, m := range sealed {
		for _, payload := range payloads {
			if bytes.Equal(payload, m.Event.Data()) {
				continue
			}
			all = append(all, changed([]transport.Message{m}, func(e *cloudevents.Event) {
				kit.NoError(w, e.SetData(wire.SealedContentType, payload))
				e.SetExtension("resourceversion", "1000")
			})...)
			all = append(all, changed([]transport.Message{m}, func(e *cloudevents.Event) {
				kit.NoError(w, e.SetData(wire.SealedContentType, payload))
			})...)
		}
	}
	if len(all) == 0 {
		w.Fatal("nothing to swap")
	}
	return all
}

// sealedForOthers returns data that is sealed to the same key for another cluster.
func sealedForOthers(w *world.World, s *seals) []byte {
	w.Helper()
	evil := w.Work(0, "evil", "evil", "evil")
	event, err := wire.Encode(&wire.Spec{
		UID: "11111111-1111-4111-8111-111111111111", Source: w.Source, Cluster: w.Clusters[1], Generation: 1, Action: wire.Update, Bundle: wire.NewBundle(&evil.Spec),
	}, time.Now())
	kit.NoError(w, err)
	_, sealer := s.sealer()
	kit.NoError(w, sealer.Seal(&event))
	if !wire.IsSealed(event.Data()) {
		w.Fatal("the key of the other cluster is missing")
	}
	return event.Data()
}

// TestHostileBrokerSealed: sealed data that is moved to another work, generation or cluster applies
// nothing: not if events are signed, and not even if they are not.
func TestHostileBrokerSealed(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	s := newSeals(t, w.Source, w.Clusters...)
	w.StartHub(s.seals)
	b, metrics, stop := hostile(w, s.keys, nil, s.opens())
	works := w.Works(0)
	want := map[string]string{"a": "2", "b": "1"}
	w.Create(works, w.Work(0, "a", "1", "a"))
	w.Create(works, w.Work(0, "b", "1", "b"))
	w.Applied(works, "a", "b")
	w.Update(works, w.Work(0, "a", "2", "a"))
	w.Applied(works, "a")
	w.Holds(0, want)
	swapped := swappedSpecs(w, s, b.seen())
	refuses(w, b, metrics, swapped)
	refuses(w, b, metrics, b.seenSpecs())
	w.Holds(0, want)
	stop()

	b = &hostileBroker{Transport: w.Transport(string(w.Clusters[0]), string(w.Clusters[0])+"-agent", w.Topics)}
	a := w.StartAgent(0, s.opens(), func(c *agent.Config) { c.Transport = b })
	w.Update(works, w.Work(0, "b", "3", "b"))
	want["b"] = "3"
	w.Applied(works, "b")
	b.inject(swapped...)
	kit.True(t, "the swapped specs are refused", func() bool {
		return kit.Gather(t, a.Metrics).Sum("workwire_agent_specs_received_total", "verdict=refused") > 0
	})
	w.Holds(0, want)
}

// seenSpecs returns the specs that the agent was sent.
func (b *hostileBroker) seenSpecs() []transport.Message {
	return slices.DeleteFunc(b.seen(), func(m transport.Message) bool { return !wire.IsSealed(m.Event.Data()) })
}
