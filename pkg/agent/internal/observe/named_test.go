package observe_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	"github.com/workwire/workwire/test/kit"
)

func (c *cluster) named(limit int) *observe.Watches {
	return observe.New(observe.Config{Client: c.agent, Max: limit, Changed: c.report, Logger: discard})
}

func (c *cluster) runNamed(limit int) *observe.Watches {
	named := c.named(limit)
	kit.Run(c, "named", named.Run)
	return named
}

func state(n *observe.Watches, ref object.Ref, want object.State) func() bool {
	return func() bool { return n.Get(ref).State == want }
}

func annotation(n *observe.Watches, ref object.Ref, want string) func() bool {
	return func() bool {
		live := n.Get(ref)
		return live.State == object.Present && live.Object.GetAnnotations()["test"] == want
	}
}

func TestNamedFollowsAnObject(t *testing.T) {
	c := newCluster(t)
	role := object.Ref{GroupVersionResource: clusterRoles, Name: c.namespace}
	for name, ref := range map[string]object.Ref{"namespaced": c.configMap("a"), "cluster-scoped": role} {
		t.Run(name, func(t *testing.T) {
			c := *c
			c.T = t
			named := c.named(10)
			stop := kit.Run(c, "named", named.Run)
			if got := named.Get(ref); got.State != object.Unknown {
				t.Errorf("%v is known of an object that nobody follows", got)
			}
			named.Follow("key", nil, []object.Ref{ref})
			kit.True(c, "the object is known to be absent", state(named, ref, object.Absent))
			c.create(ref, nil)
			c.told("key", "the object is there", state(named, ref, object.Present))
			if fields := named.Get(ref).Object.GetManagedFields(); fields != nil {
				t.Errorf("managedFields are kept: %v", fields)
			}
			c.annotate(ref, "1")
			c.told("key", "the object has changed", annotation(named, ref, "1"))
			// One of another name, and of another namespace, is none of its business.
			c.create(object.Ref{GroupVersionResource: ref.GroupVersionResource, Namespace: ref.Namespace, Name: ref.Name + "-other"}, nil)
			c.remove(ref)
			c.told("key", "the object is gone", state(named, ref, object.Absent))
			stop()
			if got := named.Get(ref); got.State != object.Unknown {
				t.Errorf("%v is known after the end of Run", got)
			}
			for len(c.changed) > 0 {
				t.Errorf("%s is told of something that did not happen", <-c.changed)
			}
		})
	}
}

func TestNamedKeepsToItsLimit(t *testing.T) {
	c := newCluster(t)
	a, b, d, e := c.configMap("a"), c.configMap("b"), c.configMap("d"), c.configMap("e")
	for _, ref := range []object.Ref{a, b, d, e} {
		c.create(ref, nil)
	}
	named := c.named(2)
	named.Follow("one", nil, []object.Ref{a, b}) // before Run
	kit.Run(c, "named", named.Run)
	c.told("one", "a is there", state(named, a, object.Present))
	kit.True(c, "b is there", state(named, b, object.Present))

	named.Follow("two", nil, []object.Ref{d, b})
	named.Follow("three", nil, []object.Ref{e})
	if named.Get(d).State != object.Unknown || named.Get(e).State != object.Unknown {
		t.Error("objects beyond the limit are known")
	}
	if named.Watching() != 2 || c.wire.open() != 2 {
		t.Errorf("%d watches, %d requests, want 2", named.Watching(), c.wire.open())
	}
	// b is still followed: only the place of a becomes free, and d waits longest.
	named.Follow("one", []object.Ref{a, b}, nil)
	c.told("two", "d is there", state(named, d, object.Present))
	if named.Get(a).State != object.Unknown || named.Get(e).State != object.Unknown || named.Get(b).State != object.Present {
		t.Errorf("a %v, e %v, b %v", named.Get(a).State, named.Get(e).State, named.Get(b).State)
	}
	// One that waits and is given up does not get a place.
	named.Follow("three", []object.Ref{e}, []object.Ref{a})
	named.Follow("two", []object.Ref{d, b}, nil)
	c.told("three", "a is there", state(named, a, object.Present))
	kit.True(c, "the other watches have ended", func() bool { return c.wire.open() == 1 && named.Watching() == 1 })
	if _, most := c.wire.counts(); most > 2 {
		t.Errorf("there were %d watches at a time", most)
	}
}

func TestNamedWithoutWatches(t *testing.T) {
	c := newCluster(t)
	ref := c.configMap("a")
	c.create(ref, nil)
	for _, limit := range []int{0, -1} {
		named := c.named(limit)
		stop := kit.Run(c, "named", named.Run)
		named.Follow("key", nil, []object.Ref{ref})
		stop()
		if requests, _ := c.wire.counts(); requests != 0 || named.Watching() != 0 {
			t.Errorf("limit %d: %d requests, %d watches", limit, requests, named.Watching())
		}
	}
}

func TestNamedSharesAndReleases(t *testing.T) {
	c := newCluster(t)
	ref := c.configMap("a")
	c.create(ref, nil)
	named := c.runNamed(5)
	named.Follow("one", nil, []object.Ref{ref, ref})
	named.Follow("two", nil, []object.Ref{ref})
	kit.True(c, "the object is there", state(named, ref, object.Present))
	if c.wire.open() != 1 {
		t.Errorf("%d watches for one object", c.wire.open())
	}
	named.Follow("one", []object.Ref{ref, ref}, nil)
	c.annotate(ref, "1")
	c.told("two", "the object has changed", annotation(named, ref, "1"))
	if c.wire.open() != 1 {
		t.Errorf("%d watches while the object is still followed", c.wire.open())
	}
	named.Follow("two", []object.Ref{ref}, nil)
	kit.True(c, "the watch has ended", func() bool { return c.wire.open() == 0 && named.Watching() == 0 })
	if got := named.Get(ref).State; got != object.Unknown {
		t.Errorf("state %v of an object that nobody follows", got)
	}
	named.Follow("one", nil, []object.Ref{ref})
	c.told("one", "the object is there again", state(named, ref, object.Present))
}

func TestNamedForbidden(t *testing.T) {
	user := "somebody"
	c := newCluster(t, impersonate(user))
	ref := c.configMap("a")
	c.create(ref, nil)
	named := c.runNamed(5)
	named.Follow("key", nil, []object.Ref{ref})
	kit.True(c, "it is tried", func() bool { requests, _ := c.wire.counts(); return requests > 1 })
	if got := named.Get(ref).State; got != object.Unknown || c.wire.open() != 0 {
		t.Errorf("state %v, %d watches of an object that may not be watched", got, c.wire.open())
	}
	c.grant(user)
	c.told("key", "the object may be watched", state(named, ref, object.Present))
}

func TestNamedTellsThatItsWatchIsLost(t *testing.T) {
	c := newCluster(t)
	ref := c.configMap("a")
	c.create(ref, nil)
	named := c.runNamed(5)
	named.Follow("key", nil, []object.Ref{ref})
	c.told("key", "the object is there", state(named, ref, object.Present))
	c.wire.sever()
	c.told("key", "nothing is known any more", state(named, ref, object.Unknown))
	c.annotate(ref, "meanwhile")
	c.wire.mend()
	c.told("key", "the object has changed", annotation(named, ref, "meanwhile"))
}

// TestNamedUnderLoad changes what is wanted from several sides at once.
func TestNamedUnderLoad(t *testing.T) {
	c := newCluster(t)
	refs := make([]object.Ref, 6)
	for i := range refs {
		refs[i] = c.configMap(fmt.Sprint("o", i))
		c.create(refs[i], nil)
	}
	named := observe.New(observe.Config{Client: c.agent, Max: 3, Changed: func(string, object.Ref, string) {}, Logger: discard})
	kit.Run(c, "named", named.Run)
	var group sync.WaitGroup
	for key := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(key), 1))
			var before []object.Ref
			for range 100 {
				var wanted []object.Ref
				for _, ref := range refs {
					if rng.IntN(3) == 0 {
						wanted = append(wanted, ref)
					}
				}
				named.Follow(fmt.Sprint(key), before, wanted)
				before = wanted
				if live := named.Get(refs[rng.IntN(len(refs))]); live.State == object.Absent {
					t.Error("an object that exists is said to be absent")
				}
			}
			named.Follow(fmt.Sprint(key), before, nil)
		})
	}
	group.Wait()
	kit.True(c, "all watches have ended", func() bool { return named.Watching() == 0 && c.wire.open() == 0 })
	if _, most := c.wire.counts(); most > 3 {
		t.Errorf("there were %d watches at a time", most)
	}
	named.Follow("last", nil, refs[:3])
	for _, ref := range refs[:3] {
		kit.True(c, "the store works on", state(named, ref, object.Present))
	}
}

func TestNamedLeavesNoGoroutines(t *testing.T) {
	c := newCluster(t)
	named := c.named(5)
	var stop func()
	pprof.Do(t.Context(), pprof.Labels("test", t.Name()), func(context.Context) { stop = kit.Run(c, "named", named.Run) })
	refs := []object.Ref{c.configMap("a"), c.configMap("b")}
	named.Follow("key", nil, refs)
	for _, ref := range refs {
		kit.True(c, "the watches go", state(named, ref, object.Absent))
	}
	if len(goroutines(t, "pkg/agent/internal/observe")) < 2 { // Run, and the watches, which count as one stack
		t.Fatal("the goroutines of Run are not found: is the test right?")
	}
	stop()
	if left := goroutines(t, "pkg/agent/internal/observe"); len(left) > 0 {
		t.Errorf("left when Run returns: %s", left)
	}
	kit.True(c, "the client's goroutines are gone", func() bool {
		return c.wire.open() == 0 && len(goroutines(t, "client-go/tools")) == 0 && len(goroutines(t, "apimachinery/pkg/watch")) == 0
	})
}

// goroutines gives the stacks that name what and carry the test's label.
func goroutines(t *testing.T, what string) []string {
	t.Helper()
	var profile bytes.Buffer
	kit.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q", t.Name())) && strings.Contains(stack, what) {
			found = append(found, stack)
		}
	}
	return found
}
