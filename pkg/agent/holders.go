package agent

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/inbox"
)

// holders says which works go by which name on the cluster. Names are those of
// AppliedManifestWorks: whatever happens to works, all that is done under one
// name is done by one worker at a time. A name has more than one holder while a
// work that is being deleted is followed by a new one. It is safe for concurrent
// use.
type holders struct {
	mu     sync.Mutex
	byName map[string][]inbox.Key // oldest first
	byKey  map[inbox.Key]string
}

func newHolders() *holders {
	return &holders{byName: map[string][]inbox.Key{}, byKey: map[inbox.Key]string{}}
}

// add lets key go by name.
func (h *holders) add(name string, key inbox.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, held := h.byKey[key]; held {
		return
	}
	h.byKey[key] = name
	h.byName[name] = append(h.byName[name], key)
}

// of gives the works that go by name, oldest first.
func (h *holders) of(name string) []inbox.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.byName[name])
}

// name gives the name that key goes by.
func (h *holders) name(key inbox.Key) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name, ok := h.byKey[key]
	return name, ok
}

// drop ends that key goes by name.
func (h *holders) drop(name string, key inbox.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[key] != name {
		return
	}
	delete(h.byKey, key)
	if keys := slices.DeleteFunc(h.byName[name], func(k inbox.Key) bool { return k == key }); len(keys) > 0 {
		h.byName[name] = keys
	} else {
		delete(h.byName, name)
	}
}

// waiting says which names wait for which kinds to be served. It is safe for
// concurrent use.
type waiting struct {
	mu     sync.Mutex
	byKind map[schema.GroupKind]map[string]struct{}
	byName map[string][]schema.GroupKind
}

func newWaiting() *waiting {
	return &waiting{byKind: map[schema.GroupKind]map[string]struct{}{}, byName: map[string][]schema.GroupKind{}}
}

// set makes name wait for kinds, instead of those it waited for before.
func (w *waiting) set(name string, kinds []schema.GroupKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range w.byName[name] {
		delete(w.byKind[kind], name)
		if len(w.byKind[kind]) == 0 {
			delete(w.byKind, kind)
		}
	}
	if len(kinds) == 0 {
		delete(w.byName, name)
		return
	}
	w.byName[name] = kinds
	for _, kind := range kinds {
		if w.byKind[kind] == nil {
			w.byKind[kind] = map[string]struct{}{}
		}
		w.byKind[kind][name] = struct{}{}
	}
}

func (w *waiting) on(kind schema.GroupKind) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := make([]string, 0, len(w.byKind[kind]))
	for name := range w.byKind[kind] {
		names = append(names, name)
	}
	return names
}
