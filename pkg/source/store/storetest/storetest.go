// Package storetest is the test that every [store.Store] passes.
package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// Place is where a store keeps its data.
type Place interface {
	// New returns a Store that is not open.
	New() store.Store
	// Copy copies what is stored, as a backup does. No store is open.
	Copy(t testing.TB)
	// Restore puts the copy back. No store is open.
	Restore(t testing.TB)
}

// Source is the source of the tests.
const Source wire.SourceID = "ops"

// Run tests stores; each test calls place for an empty one.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for name, test := range map[string]func(*testing.T, Place){
		"Header": testHeader, "Records": testRecords, "Refused": testRefused, "Concurrent": testConcurrent, "Exact": testExact,
		"Exclusive": testExclusive, "Life": testLife, "Restored": testRestored,
	} {
		t.Run(name, func(t *testing.T) { test(t, place(t)) })
	}
}

// opened is an open store and what it held.
type opened struct {
	store.Store
	header  store.Header
	records map[types.UID]string
}

func open(t testing.TB, s store.Store, initial store.Header) *opened {
	t.Helper()
	o := &opened{Store: s, records: map[types.UID]string{}}
	var err error
	o.header, err = s.Open(t.Context(), Source, initial, func(r store.Record) error {
		o.records[r.UID] = string(r.Data)
		return nil
	})
	kit.NoError(t, err)
	t.Cleanup(o.close)
	return o
}

func (o *opened) close() {
	if o.Store != nil {
		_ = o.Store.Close()
		o.Store = nil
	}
}

// write stores records with the next versions.
func (o *opened) write(t testing.TB, records ...store.Record) {
	t.Helper()
	kit.NoError(t, o.Update(t.Context(), o.header.Version, func(h store.Header, _ []store.Record) (store.Header, []store.Record, error) {
		for i := range records {
			h.Version++
			records[i].Version = h.Version
		}
		h.Floor = o.header.Floor
		o.header.Version = h.Version
		return h, records, nil
	}))
}

func put(name, data string) store.Record {
	return store.Record{UID: types.UID(name), Namespace: "cluster1", Name: name, Data: []byte(data)}
}

func initial() store.Header {
	return store.Header{Identity: "6f1c2d3e-0000-4000-8000-00000000cafe", Since: 100, Version: 1000, Floor: 100}
}

func testHeader(t *testing.T, at Place) {
	first := open(t, at.New(), initial())
	if first.header != initial() || len(first.records) != 0 {
		t.Fatalf("a new store has %+v and %d records", first.header, len(first.records))
	}
	first.header.Floor = 170
	first.write(t, put("a", `{}`))
	first.close()
	later := initial()
	later.Identity, later.Since = "another", 160
	again := open(t, at.New(), later)
	if want := (store.Header{Identity: initial().Identity, Since: 100, Version: 1001, Floor: 170}); again.header != want {
		t.Errorf("opened again it has %+v, want %+v", again.header, want)
	}
	again.close()
	later.Version = 5000
	if got := open(t, at.New(), later).header.Version; got != 5000 {
		t.Errorf("the version is %d, want that of the caller, which is higher", got)
	}
}

func testRecords(t *testing.T, at Place) {
	s := open(t, at.New(), initial())
	s.write(t, put("a", `{"n":1}`), put("b", `{"n":1}`))
	s.write(t, put("a", `{"n":2}`), put("c", `{"n":1}`))
	gone := put("b", `{"n":1}`)
	gone.Removed = true
	s.write(t, gone)
	s.close()
	want := map[types.UID]string{"a": `{"n":2}`, "c": `{"n":1}`}
	s = open(t, at.New(), initial())
	if !maps.Equal(s.records, want) || s.header.Version != 1005 {
		t.Errorf("the store has %v at version %d, want %v", s.records, s.header.Version, want)
	}
	s.write(t, put("b", `{"n":9}`)) // its name is used again
	s.close()
	want["b"] = `{"n":9}`
	if s = open(t, at.New(), initial()); !maps.Equal(s.records, want) {
		t.Errorf("the store has %v, want %v", s.records, want)
	}
}

// testRefused: an update whose function returns an error, or no records, stores nothing; an error of
// the reader ends Open.
func testRefused(t *testing.T, at Place) {
	s := open(t, at.New(), initial())
	s.write(t, put("a", `{}`))
	refusal := errors.New("refused")
	err := s.Update(t.Context(), s.header.Version, func(h store.Header, _ []store.Record) (store.Header, []store.Record, error) {
		h.Version++
		return h, []store.Record{put("b", `{}`)}, refusal
	})
	if !errors.Is(err, refusal) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("Update returns %v", err)
	}
	kit.NoError(t, s.Update(t.Context(), s.header.Version, func(h store.Header, _ []store.Record) (store.Header, []store.Record, error) {
		h.Version += 100
		return h, nil, nil
	}))
	s.close()
	_, err = at.New().Open(t.Context(), Source, initial(), func(store.Record) error { return refusal })
	if !errors.Is(err, refusal) {
		t.Errorf("Open returns %v", err)
	}
	if s = open(t, at.New(), initial()); len(s.records) != 1 || s.header.Version != 1001 {
		t.Errorf("the store has %v at version %d", s.records, s.header.Version)
	}
}

// testConcurrent: updates from many goroutines run one after the other, and none is lost.
func testConcurrent(t *testing.T, at Place) {
	s := open(t, at.New(), initial())
	const writers, each = 8, 20
	var mu sync.Mutex
	var version int64 = 1000
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range each {
				mu.Lock()
				after := version
				version++
				err := s.Update(t.Context(), after, func(h store.Header, newer []store.Record) (store.Header, []store.Record, error) {
					if len(newer) > 0 || h.Version != after {
						t.Errorf("update after %d begins at %d with %d newer records", after, h.Version, len(newer))
					}
					h.Version++
					r := put(fmt.Sprint(i, "-", n), `{}`)
					r.Version = h.Version
					return h, []store.Record{r}, nil
				})
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	s.close()
	if s = open(t, at.New(), initial()); len(s.records) != writers*each || s.header.Version != 1000+writers*each {
		t.Errorf("the store has %d records at version %d", len(s.records), s.header.Version)
	}
}

// testExact: data come back byte by byte, since agents compare hashes of manifests.
func testExact(t *testing.T, at Place) {
	s := open(t, at.New(), initial())
	want := map[types.UID]string{}
	for i, data := range []string{
		`{"b":1,"a":2, "a":3}`, "{\n\t\"x\" : 1e400 }", `{"html":"<a>&amp;</a>","zero":"\u0000","quote":"'\"\\"}`,
		`{"wide":"日本語 🚀 \ud83d\ude80","minus":-0.0,"big":12345678901234567890123}`,
	} {
		r := put(fmt.Sprint("w", i), data)
		want[r.UID] = data
		s.write(t, r)
	}
	s.close()
	s = open(t, at.New(), initial())
	for _, uid := range slices.Sorted(maps.Keys(want)) {
		if s.records[uid] != want[uid] {
			t.Errorf("%s comes back as %q, want %q", uid, s.records[uid], want[uid])
		}
	}
}

// testExclusive: a store that is not shared is used by one client at a time, for one source.
func testExclusive(t *testing.T, at Place) {
	first := open(t, at.New(), initial())
	if _, shared := first.Store.(store.Shared); shared {
		return
	}
	nothing := func(store.Record) error { return nil }
	if _, err := at.New().Open(t.Context(), Source, initial(), nothing); !errors.Is(err, store.ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	first.close()
	if _, err := at.New().Open(t.Context(), "another", initial(), nothing); !errors.Is(err, store.ErrIncompatible) {
		t.Errorf("opened for another source: %v", err)
	}
}
