package wire_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

func encode(t testing.TB, m wire.Message) cloudevents.Event {
	t.Helper()
	e, err := wire.Encode(m, time.Now())
	kit.NoError(t, err)
	return e
}

// sourceEvents has one event of every kind that a source sends, with all its extensions.
func sourceEvents(t testing.TB) map[string]cloudevents.Event {
	t.Helper()
	now := metav1.Now()
	meta := metav1.ObjectMeta{Name: "web", Namespace: "c1", Labels: map[string]string{"a": "b"}}
	var m workv1.Manifest
	m.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	return map[string]cloudevents.Event{
		"spec": encode(t, &wire.Spec{UID: "u", Generation: 3, Source: "hub1", Cluster: "c1", Action: wire.Update, Meta: meta, Trace: `{"a":"b"}`,
			SourceIdentity: "id", Authoritative: true, Bundle: &wire.Bundle{Manifests: []workv1.Manifest{m}}}),
		"deletion": encode(t, &wire.Spec{UID: "u", Generation: 3, Source: "hub1", Cluster: "c1", Action: wire.Delete, Meta: meta, Trace: `{"a":"b"}`,
			SourceIdentity: "id", DeletionTimestamp: &now}),
		"status resync": encode(t, &wire.StatusResync{Source: "hub1", Cluster: "c1", SourceIdentity: "id", Hashes: []wire.StatusVersion{{UID: "u", Hash: "h"}}}),
	}
}

// TestSignedBytesCoverEveryExtension: whatever an intermediary changes in an event of a source, adds
// to it or removes from it changes the signed bytes, but for what no agent reads.
func TestSignedBytesCoverEveryExtension(t *testing.T) {
	unread := []string{"statushash", "sequenceid", "session", "expirytime"}
	at := time.UnixMicro(1)
	for kind, event := range sourceEvents(t) {
		if !wire.IsSignable(event) {
			t.Errorf("%s cannot be signed", kind)
		}
		signed := string(wire.SignedBytes(event, "k", at))
		names := []string{"clustername", "originalsource", "resourceid", "resourceversion", "sourceidentity", "authoritative",
			"deletiontimestamp", "contenthash", "metadata", "logtracing"}
		for name := range event.Extensions() {
			if !slices.Contains(names, name) {
				t.Errorf("%s has extension %s, which is not signed", kind, name)
			}
		}
		for _, name := range names {
			changed := event.Clone()
			changed.SetExtension(name, "something else")
			if string(wire.SignedBytes(changed, "k", at)) == signed {
				t.Errorf("%s: extension %s is not signed", kind, name)
			}
		}
		for _, name := range unread {
			changed := event.Clone()
			changed.SetExtension(name, "1")
			if string(wire.SignedBytes(changed, "k", at)) != signed {
				t.Errorf("%s: extension %s is signed, but not listed in docs/protocol.md", kind, name)
			}
		}
		for what, change := range map[string]func(*cloudevents.Event){
			"type":   func(e *cloudevents.Event) { e.SetType("other") },
			"source": func(e *cloudevents.Event) { e.SetSource("hub2") },
			"data":   func(e *cloudevents.Event) { _ = e.SetData("application/json", []byte(`{}`)) },
		} {
			changed := event.Clone()
			change(&changed)
			if string(wire.SignedBytes(changed, "k", at)) == signed {
				t.Errorf("%s: the %s is not signed", kind, what)
			}
		}
		if string(wire.SignedBytes(event, "l", at)) == signed || string(wire.SignedBytes(event, "k", time.UnixMicro(2))) == signed {
			t.Errorf("%s: the key or the time is not signed", kind)
		}
	}
}

// statusEvents has one status of every kind, with all its extensions.
func statusEvents(t testing.TB) map[string]cloudevents.Event {
	t.Helper()
	at := metav1.NewMicroTime(time.Unix(1_790_000_000, 0))
	status := func(action wire.Action, conditions ...string) cloudevents.Event {
		s := &wire.Status{
			UID: "u", Generation: 3, Source: "hub1", Cluster: "c1", Agent: "a", Action: action, Meta: metav1.ObjectMeta{Name: "web", Namespace: "c1"},
			Sequence: 7, Session: "s", Trace: `{"a":"b"}`, Times: wire.Times{Received: at, Applied: at, Ready: at},
		}
		for _, c := range conditions {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		return encode(t, s)
	}
	return map[string]cloudevents.Event{
		"status": status(wire.Update, "Applied"), "first status": status(wire.Create, "Applied"), "answer": status(wire.ResyncResponse, "Applied"),
		"last status":    status(wire.Update, "Deleted"),
		"spec resync":    encode(t, &wire.SpecResync{Agent: "a", Cluster: "c1", Source: "hub1", Versions: []wire.SpecVersion{{UID: "u", Generation: 1}}}),
		"digest":         encode(t, &wire.Digest{Agent: "a", Cluster: "c1", Source: "hub1", Buckets: wire.NewBuckets(nil)}),
		"dry-run answer": encode(t, &wire.DryRunAnswer{ID: "i", Agent: "a", Cluster: "c1", Source: "hub1", Generation: 3, Failure: "f"}),
	}
}

// TestSignedBytesOfStatusesCoverEveryExtension: whatever an intermediary changes in a status, adds to it
// or removes from it changes the signed bytes, but for what no source reads.
func TestSignedBytesOfStatusesCoverEveryExtension(t *testing.T) {
	at := time.UnixMicro(1)
	names := []string{"clustername", "originalsource", "resourceid", "resourceversion", "sequenceid", "session", "statushash",
		"receivedtime", "appliedtime", "readytime", "metadata", "logtracing"}
	for kind, event := range statusEvents(t) {
		if !wire.IsSignableByAgent(event) || wire.IsSignable(event) {
			t.Errorf("%s: signable as a status: %v, as an event of a source: %v", kind, wire.IsSignableByAgent(event), wire.IsSignable(event))
		}
		signed := string(wire.SignedBytes(event, "k", at))
		if !strings.HasPrefix(signed, "32:workwire.dev/status-signature/v1,") {
			t.Errorf("%s: the signed bytes begin with another purpose: %s", kind, signed)
		}
		for name := range event.Extensions() {
			if !slices.Contains(names, name) {
				t.Errorf("%s has extension %s, which is not signed", kind, name)
			}
		}
		changes := map[string]func(*cloudevents.Event){
			"type":   func(e *cloudevents.Event) { e.SetType(sourceEvents(t)["spec"].Type()) },
			"source": func(e *cloudevents.Event) { e.SetSource("b") },
			"data":   func(e *cloudevents.Event) { _ = e.SetData("application/json", []byte(`{}`)) },
		}
		for _, name := range names {
			changes[name] = func(e *cloudevents.Event) { e.SetExtension(name, "something else") }
		}
		for what, change := range changes {
			changed := event.Clone()
			change(&changed)
			if string(wire.SignedBytes(changed, "k", at)) == signed {
				t.Errorf("%s: the %s is not signed", kind, what)
			}
		}
		if string(wire.SignedBytes(event, "l", at)) == signed || string(wire.SignedBytes(event, "k", time.UnixMicro(2))) == signed {
			t.Errorf("%s: the key or the time is not signed", kind)
		}
	}
}

// TestSignedBytesAreUnambiguous: text cannot move from one field to the next.
func TestSignedBytesAreUnambiguous(t *testing.T) {
	event := sourceEvents(t)["spec"]
	a, b := event.Clone(), event.Clone()
	a.SetExtension("clustername", "c1,0:,")
	b.SetExtension("clustername", "c1")
	if string(wire.SignedBytes(a, "k", time.UnixMicro(1))) == string(wire.SignedBytes(b, "k", time.UnixMicro(1))) {
		t.Error("two events have the same bytes")
	}
}

// TestEventsOfAgentsAreNotSigned as those of sources, and presence not at all.
func TestEventsOfAgentsAreNotSigned(t *testing.T) {
	for _, m := range []wire.Message{
		&wire.SpecResync{Agent: "a", Cluster: "c1"}, &wire.Presence{Agent: "a", Cluster: "c1", Session: "s"},
		&wire.Status{UID: "u", Agent: "a", Cluster: "c1", Action: wire.Update},
	} {
		if e := encode(t, m); wire.IsSignable(e) {
			t.Errorf("%T can be signed as an event of a source", m)
		} else if _, isPresence := m.(*wire.Presence); wire.IsSignableByAgent(e) == isPresence {
			t.Errorf("%T can be signed by an agent: %v", m, isPresence)
		}
	}
}

func signatureText() string {
	s := wire.Signature{KeyID: "0123456789abcdef", Time: time.UnixMicro(1790000000000000)}
	for i := range s.Value {
		s.Value[i] = byte(255 - i)
	}
	return s.String()
}

func TestParseSignature(t *testing.T) {
	text := signatureText()
	if s, err := wire.ParseSignature(text); err != nil || s.String() != text {
		t.Errorf("ParseSignature = %v, %v", s, err)
	}
	parts := strings.Split(text, ":")
	join := func(i int, with string) string {
		changed := slices.Clone(parts)
		changed[i] = with
		return strings.Join(changed, ":")
	}
	for what, text := range map[string]string{
		"empty": "", "a part less": strings.Join(parts[:3], ":"), "a part more": text + ":", "another version": join(0, "v2"),
		"a short key": join(1, "0123"), "an upper-case key": join(1, "0123456789ABCDEF"), "no time": join(2, ""), "a negative time": join(2, "-1"),
		"time 0": join(2, "0"), "a time with a zero": join(2, "01"), "a time with a sign": join(2, "+1"), "a time too large": join(2, "99999999999999999999"),
		"a short value": join(3, parts[3][:85]), "a long value": join(3, parts[3]+"A"), "padding": join(3, parts[3][:84]+"=="),
		"a line feed": join(3, parts[3][:85]+"\n"), "trailing bits": join(3, parts[3][:85]+"B"),
	} {
		if s, err := wire.ParseSignature(text); err == nil {
			t.Errorf("%s: %q is parsed: %+v", what, text, s)
		}
	}
}

// FuzzSignature: a signature has one text only.
func FuzzSignature(f *testing.F) {
	f.Add(signatureText())
	f.Add("v1:0123456789abcdef:1:")
	f.Add(":::")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := wire.ParseSignature(text); err == nil && s.String() != text {
			t.Fatalf("%q is read as %q", text, s)
		}
	})
}
