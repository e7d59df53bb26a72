package watchcache

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func metadata(name string, uid types.UID, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: uid, ResourceVersion: strconv.Itoa(version),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "someone"}},
	}}
}

func blank() *metav1.PartialObjectMetadata { return &metav1.PartialObjectMetadata{} }

// steps are calls and checks of a cache, in the order of a test.
type steps struct {
	t       *testing.T
	cache   *Cache[*metav1.PartialObjectMetadata]
	changed []string
}

func newSteps(t *testing.T) *steps {
	s := &steps{t: t}
	s.cache = New(blank, func(name types.NamespacedName, _ string) { s.changed = append(s.changed, name.Name) })
	return s
}

func (s *steps) must(err error) *steps {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *steps) list(version int, items ...any) *steps {
	return s.must(s.cache.Replace(items, strconv.Itoa(version)))
}

func (s *steps) wantVersion(name string, version int) *steps {
	s.t.Helper()
	got, ok := s.cache.Get(types.NamespacedName{Namespace: "ns", Name: name})
	switch {
	case version == 0 && ok:
		s.t.Errorf("%s is known at version %s, want it gone", name, got.ResourceVersion)
	case version != 0 && !ok:
		s.t.Errorf("%s is not known, want version %d", name, version)
	case version != 0 && got.ResourceVersion != strconv.Itoa(version):
		s.t.Errorf("%s is known at version %s, want %d", name, got.ResourceVersion, version)
	}
	return s
}

func (s *steps) wantChanged(names ...string) *steps {
	s.t.Helper()
	slices.Sort(s.changed)
	if !slices.Equal(s.changed, names) {
		s.t.Errorf("changes told of %v, want %v", s.changed, names)
	}
	s.changed = nil
	return s
}

func TestCacheKeepsTheNewest(t *testing.T) {
	t.Run("a write's answer is ahead of the watch, whose echo is no change", func(t *testing.T) {
		s := newSteps(t).list(5)
		s.cache.Learn(metadata("a", "1", 7))
		s.wantVersion("a", 7).wantChanged()
		s.must(s.cache.Add(metadata("a", "1", 7))).wantVersion("a", 7).wantChanged()
		s.must(s.cache.Update(metadata("a", "1", 8))).wantVersion("a", 8).wantChanged("a")
	})
	t.Run("a late answer does not bring back what the watch saw go", func(t *testing.T) {
		s := newSteps(t).list(5, metadata("a", "1", 4)).wantChanged("a")
		s.must(s.cache.Delete(metadata("a", "1", 9))).wantChanged("a")
		s.cache.Learn(metadata("a", "1", 8))
		s.wantVersion("a", 0)
		s.cache.Learn(metadata("a", "2", 10))
		s.wantVersion("a", 10)
	})
	t.Run("an old event does not hide a successor that a write returned", func(t *testing.T) {
		s := newSteps(t).list(5, metadata("a", "1", 4))
		s.cache.Forget(types.NamespacedName{Namespace: "ns", Name: "a"}, "1")
		s.cache.Learn(metadata("a", "2", 12))
		s.must(s.cache.Delete(metadata("a", "1", 11))).wantVersion("a", 12)
	})
	t.Run("forgetting by uid spares the successor", func(t *testing.T) {
		s := newSteps(t).list(5, metadata("a", "2", 4))
		s.cache.Forget(types.NamespacedName{Namespace: "ns", Name: "a"}, "1")
		s.wantVersion("a", 4)
	})
	t.Run("a list drops what is older and keeps what is newer", func(t *testing.T) {
		s := newSteps(t)
		s.cache.Learn(metadata("older", "1", 3))
		s.cache.Learn(metadata("newer", "2", 9))
		s.list(5, metadata("other", "3", 2)).wantVersion("older", 0).wantVersion("newer", 9).wantVersion("other", 2)
		s.wantChanged("older", "other")
	})
	t.Run("a list of a restored API server replaces everything", func(t *testing.T) {
		s := newSteps(t).list(5, metadata("same", "1", 4), metadata("back", "2", 5), metadata("gone", "3", 5)).wantChanged("back", "gone", "same")
		s.cache.Learn(metadata("new", "4", 9))
		s.must(s.cache.Bookmark("10"))
		s.list(4, metadata("same", "1", 4), metadata("back", "2", 3)).wantChanged("back", "gone", "new", "same")
		s.wantVersion("same", 4).wantVersion("back", 3).wantVersion("gone", 0).wantVersion("new", 0)
		s.cache.Learn(metadata("back", "2", 6))
		s.wantVersion("back", 6)
	})
	t.Run("a restore with a bump of the revision brings old objects back", func(t *testing.T) {
		s := newSteps(t).list(5, metadata("back", "2", 5), metadata("gone", "3", 5)).wantChanged("back", "gone")
		s.cache.Learn(metadata("back", "2", 7))
		s.list(1_000_003, metadata("back", "2", 3)).wantVersion("back", 3).wantVersion("gone", 0).wantChanged("back", "gone")
	})
	t.Run("a list without comparable versions replaces everything", func(t *testing.T) {
		at := func(name, version string) *metav1.PartialObjectMetadata {
			o := metadata(name, "1", 0)
			o.ResourceVersion = version
			return o
		}
		s := newSteps(t)
		s.must(s.cache.Replace([]any{at("same", "1/"), at("changed", "2/"), at("gone", "3/")}, "3/3")).wantChanged("changed", "gone", "same")
		s.must(s.cache.Replace([]any{at("same", "1/"), at("changed", "4/")}, "5/5")).wantVersion("gone", 0).wantChanged("changed", "gone")
		if got, _ := s.cache.Get(types.NamespacedName{Namespace: "ns", Name: "changed"}); got.ResourceVersion != "4/" {
			t.Errorf("version %s is known", got.ResourceVersion)
		}
	})
	t.Run("a bookmark moves the watch on", func(t *testing.T) {
		s := newSteps(t).list(5)
		s.must(s.cache.Bookmark("20"))
		s.cache.Learn(metadata("a", "1", 19))
		s.wantVersion("a", 0)
	})
	t.Run("managed fields are not kept", func(t *testing.T) {
		s := newSteps(t).list(1)
		s.cache.Learn(metadata("a", "1", 2))
		got, _ := s.cache.Get(types.NamespacedName{Namespace: "ns", Name: "a"})
		if got.ManagedFields != nil {
			t.Error("a learnt object keeps its managed fields")
		}
	})
}

// TestLearntObjectIsFound: after Learn, Get returns that version or a later one, also while the
// watch delivers the same.
func TestLearntObjectIsFound(t *testing.T) {
	t.Parallel()
	cache := New(blank, func(types.NamespacedName, string) {})
	if err := cache.Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	for version := 2; version < 5000; version++ {
		var watch sync.WaitGroup
		begun := make(chan struct{})
		watch.Go(func() {
			close(begun)
			if err := cache.Update(metadata("a", "1", version)); err != nil {
				t.Error(err)
			}
		})
		<-begun
		cache.Learn(metadata("a", "1", version))
		got, ok := cache.Get(types.NamespacedName{Namespace: "ns", Name: "a"})
		if !ok || got.ResourceVersion != strconv.Itoa(version) {
			t.Fatalf("version %d was learnt, and %+v is known", version, got)
		}
		watch.Wait()
	}
}

// TestCacheConverges: responses to writes arrive late and in any order while a watch delivers the
// true history. In the end the cache has the true state.
func TestCacheConverges(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cache := New(blank, func(types.NamespacedName, string) {})
		if err := cache.Replace(nil, "1"); err != nil {
			t.Fatal(err)
		}
		truth := map[string]int{}
		var answers []*metav1.PartialObjectMetadata
		for version := 2; version < 40; version++ {
			name := string(rune('a' + rng.IntN(3)))
			o := metadata(name, types.UID(name), version)
			var err error
			switch _, exists := truth[name]; {
			case exists && rng.IntN(3) == 0:
				delete(truth, name)
				err = cache.Delete(o)
			default:
				truth[name] = version
				answers = append(answers, metadata(name, types.UID(name), version))
				if rng.IntN(2) == 0 { // the answer first
					cache.Learn(metadata(name, types.UID(name), version))
				}
				err = cache.Update(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(answers) > 0 && rng.IntN(2) == 0 {
				cache.Learn(answers[rng.IntN(len(answers))])
			}
		}
		got := map[string]int{}
		for o := range cache.All() {
			got[o.Name], _ = strconv.Atoi(o.ResourceVersion)
		}
		if !maps.Equal(got, truth) {
			t.Fatalf("seed %d: %v is known, want %v", seed, got, truth)
		}
	}
}
