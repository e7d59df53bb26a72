package wire_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// randomStatus returns a status with few different values, so that two of them share much.
func randomStatus(r *rand.Rand) workv1.ManifestWorkStatus {
	texts := []string{"", "a", "b", "a < b & ü\u2028", strings.Repeat("m", 300), "null", `{"a":null}`}
	text := func() string { return texts[r.IntN(len(texts))] }
	conditions := func() []metav1.Condition {
		if r.IntN(4) == 0 {
			return [][]metav1.Condition{nil, {}}[r.IntN(2)]
		}
		list := make([]metav1.Condition, r.IntN(4))
		for i := range list {
			list[i] = metav1.Condition{Type: text(), Status: metav1.ConditionTrue, Message: text(), ObservedGeneration: int64(r.IntN(2))}
			if r.IntN(2) == 0 {
				list[i].LastTransitionTime = metav1.Unix(int64(r.IntN(3)), 0)
			}
		}
		return list
	}
	values := func() []workv1.FeedbackValue {
		if r.IntN(4) == 0 {
			return [][]workv1.FeedbackValue{nil, {}}[r.IntN(2)]
		}
		list := make([]workv1.FeedbackValue, r.IntN(4))
		for i := range list {
			list[i].Name = text()
			switch v := &list[i].Value; r.IntN(4) {
			case 0:
				v.Type, v.Integer = workv1.Integer, ptr(9007199254740993+int64(r.IntN(3)))
			case 1:
				v.Type, v.Boolean = workv1.Boolean, ptr(r.IntN(2) == 0)
			case 2:
				v.Type, v.JsonRaw = workv1.JsonRaw, ptr(text())
			default:
				v.Type, v.String = workv1.String, ptr(text())
			}
		}
		return list
	}
	s := workv1.ManifestWorkStatus{Conditions: conditions()}
	for i := range r.IntN(5) {
		s.ResourceStatus.Manifests = append(s.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta:    workv1.ManifestResourceMeta{Ordinal: int32(i), Name: text()},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: values()}, Conditions: conditions(),
		})
	}
	return s
}

func statusWith(t testing.TB, status workv1.ManifestWorkStatus) *wire.Status {
	t.Helper()
	hash, err := wire.StatusHash(&status)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.Status{
		UID: "u", Generation: 3, Source: "harbor", Cluster: "quay-7", Agent: "quay-7-agent", Action: wire.Update, Sequence: 7, Session: "s",
		Meta: metav1.ObjectMeta{Name: "lamp", Namespace: "quay-7", UID: "u"}, Hash: hash, Status: status,
	}
}

// Each status is the same after it was sent as its difference from another one.
func TestStatusDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 4))
	for i := range 3000 {
		base, next := statusWith(t, randomStatus(r)), statusWith(t, randomStatus(r))
		d, err := wire.NewStatusDelta(next, &base.Status, base.Hash)
		if err != nil {
			t.Fatal(err)
		}
		e, err := wire.Encode(d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		message, err := wire.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		received, ok := message.(*wire.StatusDelta)
		if !ok || received.Base != base.Hash {
			t.Fatalf("received %+v", message)
		}
		before, _ := json.Marshal(base)
		got, err := received.Apply(&base.Status)
		if err != nil {
			t.Fatalf("run %d: %v\nbase  %s\nparts %+v", i, err, before, received.Parts)
		}
		if after, _ := json.Marshal(base); string(after) != string(before) {
			t.Fatal("the base has changed")
		}
		if got.Hash != next.Hash || got.UID != next.UID || got.Generation != next.Generation || got.Sequence != next.Sequence || got.Session != next.Session {
			t.Fatalf("got %+v, want %+v", got, next)
		}
		want, _ := json.Marshal(next.Status)
		have, _ := json.Marshal(got.Status)
		if diff := cmp.Diff(plain(want), plain(have)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestStatusDeltaOfAnotherBase(t *testing.T) {
	changed := wirekit.LargeStatus(3)
	changed.Conditions[0].Message = "changed"
	base, next, other := statusWith(t, wirekit.LargeStatus(3)), statusWith(t, changed), statusWith(t, wirekit.LargeStatus(4))
	d, err := wire.NewStatusDelta(next, &base.Status, base.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Apply(&other.Status); !errors.Is(err, wire.ErrOtherResult) {
		t.Errorf("applied to another status: %+v, %v", got, err)
	}
}

// One feedback value of a work with 500 manifests costs less than a hundredth of the status.
func TestStatusDeltaIsSmall(t *testing.T) {
	base, next := statusWith(t, wirekit.LargeStatus(500)), wirekit.LargeStatus(500)
	next.ResourceStatus.Manifests[250].StatusFeedbacks.Values[0].Value.Integer = ptr(int64(2))
	whole := statusWith(t, next)
	d, err := wire.NewStatusDelta(whole, &base.Status, base.Hash)
	if err != nil {
		t.Fatal(err)
	}
	full, err := wire.Encode(whole, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	delta, err := wire.Encode(d, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if 100*len(delta.Data()) > len(full.Data()) {
		t.Errorf("the delta has %d bytes, the status %d: %s", len(delta.Data()), len(full.Data()), delta.Data())
	}
	if d.NewBytes() != 1 || len(delta.Data()) > 200 {
		t.Errorf("the delta is %s", delta.Data())
	}

	for i := range next.ResourceStatus.Manifests { // what a new generation changes everywhere
		next.ResourceStatus.Manifests[i].Conditions[0].ObservedGeneration++
	}
	if d, err = wire.NewStatusDelta(statusWith(t, next), &base.Status, base.Hash); err != nil {
		t.Fatal(err)
	}
	if delta, err = wire.Encode(d, time.Now()); err == nil {
		err = wire.Compress(&delta)
	}
	if err != nil || len(delta.Data()) > 3000 {
		t.Errorf("500 changes of the same kind: %d bytes, %v", len(delta.Data()), err)
	}
}

func TestStatusDeltaNeeds(t *testing.T) {
	base, next := statusWith(t, wirekit.LargeStatus(1)), statusWith(t, wirekit.LargeStatus(2))
	d, err := wire.NewStatusDelta(next, &base.Status, base.Hash)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*wire.StatusDelta){
		"base":  func(d *wire.StatusDelta) { d.Base = "" },
		"hash":  func(d *wire.StatusDelta) { d.Of.Hash = "" },
		"parts": func(d *wire.StatusDelta) { d.Parts = nil },
	} {
		broken := *d
		change(&broken)
		if _, err := wire.Encode(&broken, time.Now()); err == nil || !strings.Contains(err.Error(), "are required") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// FuzzStatusDelta: whatever parts arrive, the result is an error or a status of what agents report.
func FuzzStatusDelta(f *testing.F) {
	base := statusWith(f, wirekit.LargeStatus(2))
	next := wirekit.LargeStatus(3)
	next.Conditions = nil
	d, err := wire.NewStatusDelta(statusWith(f, next), &base.Status, base.Hash)
	if err != nil {
		f.Fatal(err)
	}
	valid, err := json.Marshal(d.Parts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid, d.Of.Hash)
	for _, parts := range []string{`[]`, `[{"count":1}]`, `[{"text":"{}"}]`, `[{"text":"{\"conditions\":[{\"type\":1e400}]}"}]`, `[{"count":9},{"text":"x"}]`} {
		f.Add([]byte(parts), base.Hash)
	}
	f.Fuzz(func(t *testing.T, parts []byte, hash string) {
		received := &wire.StatusDelta{Of: wire.Status{UID: "u", Hash: hash}, Delta: wire.Delta{Base: base.Hash}}
		if json.Unmarshal(parts, &received.Parts) != nil {
			t.Skip()
		}
		got, err := received.Apply(&base.Status)
		if err != nil {
			return
		}
		if got.Status.Delivery != nil {
			t.Fatal("an agent reports a delivery")
		}
	})
}
