package delivery

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// TestBegin: as many attempts are under way as may be; clusters that are paused and works that are forgotten are passed over.
func TestBegin(t *testing.T) {
	s := newScript(t)
	s.core = testCore(2, 30*time.Second, ClusterOpen)
	s.step(&connected{})
	work := func(i int) *workv1.ManifestWork {
		w := testWork(fmt.Sprint("w", i), 1)
		w.Namespace = fmt.Sprint("cluster", i)
		return w
	}
	counts := func(begun, pending, unconfirmed int) {
		t.Helper()
		if len(s.begun) != begun || s.core.pending() != pending || s.core.unconfirmed() != unconfirmed {
			t.Errorf("%d attempts, %d works pending and %d unconfirmed; want %d, %d and %d",
				len(s.begun), s.core.pending(), s.core.unconfirmed(), begun, pending, unconfirmed)
		}
	}
	for i := range 6 {
		s.core.connection = 0 // until all are there
		s.step(workChanged{keyOf(work(i))})
	}
	s.core.connection = 1
	s.step(timePassed{})
	counts(2, 6, 0)
	s.core.clusters["cluster2"].state = ClusterPaused
	forgotten := s.core.works[keyOf(work(3))]
	forgotten.cluster.removed.add(forgotten)
	s.core.forget(forgotten)
	if forgotten.cluster.removed.len() != 0 || s.core.clusters["cluster3"] != nil {
		t.Error("a forgotten work is still of its cluster")
	}
	s.step(s.begin(work(0)))
	if len(s.begun) != 2 || s.begun[1].before.key.cluster != "cluster4" {
		t.Fatalf("next comes %+v", s.begun)
	}
	counts(2, 4, 1)
	ended := s.begin(work(1))
	ended.err = errors.New("refused")
	s.step(ended)
	counts(2, 3, 2)
	if again := s.core.step(s.now, timePassed{}); len(again) != 0 {
		t.Errorf("actions are handed out again: %+v", again)
	}
}

// TestMetadataHash: it tells apart what agents receive, and nothing else.
func TestMetadataHash(t *testing.T) {
	type set = map[string]string
	seen := map[uint64]int{}
	for i, m := range []metav1.ObjectMeta{
		{}, {Labels: set{"a": "b"}}, {Labels: set{"b": "a"}}, {Labels: set{"x": "b"}}, {Labels: set{"a": "b", "cx": "d"}}, {Labels: set{"a": "bc", "x": "d"}}, {Labels: set{"ab": ""}}, {Labels: set{"a": "", "b": ""}}, {Labels: set{"": "ab"}},
		{Annotations: set{"a": "b"}}, {Annotations: set{"a": "b", "z": "1"}}, {Labels: set{"a": "bc"}}, {Labels: set{"a": "b", "c": ""}},
	} {
		hash := metadataHash(&m)
		if before, again := seen[hash]; again {
			t.Errorf("%d and %d have one hash", before, i)
		}
		seen[hash] = i
		with := m.DeepCopy()
		metav1.SetMetaDataAnnotation(with, corev1.LastAppliedConfigAnnotation, "x")
		if metadataHash(with) != hash {
			t.Errorf("%d: what kubectl notes counts", i)
		}
	}
}

// TestPlanRemoved: the deletion of a work that the source has no more is published once, and again if asked for.
func TestPlanRemoved(t *testing.T) {
	published := revision{generation: 3, deleting: true}
	for _, meta := range []*metav1.ObjectMeta{nil, {Name: "w"}} {
		for intent, want := range map[intent]bool{nothing: false, repeat: true, reply: true} {
			a := &workRecord{key: workKey{uid: "u", cluster: "cluster1"}, intent: intent, published: published, removed: &removedWork{generation: 3, meta: meta}}
			p := planPublish(a, StoredWork{}, "hub1", time.Unix(1000, 0))
			if (p.spec != nil) != want || p.revision != published || want && p.spec.NoMetadata != (meta == nil) {
				t.Errorf("intent %v, metadata %v: %+v", intent, meta, p)
			}
		}
		a := &workRecord{removed: &removedWork{generation: 3, meta: meta}, published: revision{generation: 2}}
		if p := planPublish(a, StoredWork{}, wire.SourceID("hub1"), time.Unix(1000, 0)); p.spec == nil {
			t.Error("a deletion that was not published is not")
		}
	}
}
