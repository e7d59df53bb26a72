package observe_test

import (
	"math"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	"github.com/workwire/workwire/test/kit"
)

func (c *cluster) runObjects() *observe.Watches {
	objects := observe.New(observe.Config{
		Client: c.agent, Selector: "test=" + c.namespace, Max: math.MaxInt, Changed: c.report, Logger: discard,
	})
	kit.Run(c, "objects", objects.Run)
	return objects
}

func TestObjectsFollow(t *testing.T) {
	c := newCluster(t)
	ours := map[string]string{"test": c.namespace}
	a, other := c.configMap("a"), c.configMap("other")
	c.create(other, nil)
	objects := c.runObjects()
	objects.Follow("key", nil, []object.Ref{a, other})
	objects.Wait(t.Context())
	if !objects.Watched(configMaps) || objects.Get(a).State != object.Absent || objects.Get(other).State != object.Absent {
		t.Errorf("watched %v, a %v, without our label %v", objects.Watched(configMaps), objects.Get(a).State, objects.Get(other).State)
	}
	c.create(a, ours)
	c.told("key", "a is there", func() bool { return objects.Get(a).State == object.Present })
	c.remove(a)
	c.told("key", "a is gone", func() bool { return objects.Get(a).State == object.Absent })
	if c.wire.open() != 1 {
		t.Errorf("%d watches for one type", c.wire.open())
	}
	objects.Follow("key", []object.Ref{a, other}, nil)
	kit.True(c, "the watch has ended", func() bool { return c.wire.open() == 0 })
	if objects.Watched(configMaps) || objects.Get(a).State != object.Unknown {
		t.Errorf("watched %v, state %v of what nobody follows", objects.Watched(configMaps), objects.Get(a).State)
	}
}

func TestObjectsForbidden(t *testing.T) {
	c := newCluster(t, impersonate("nobody"))
	a := c.configMap("a")
	objects := c.runObjects()
	objects.Follow("key", nil, []object.Ref{a})
	objects.Wait(t.Context()) // comes back all the same
	if objects.Watched(configMaps) || objects.Get(a).State != object.Unknown {
		t.Errorf("watched %v, state %v", objects.Watched(configMaps), objects.Get(a).State)
	}
}

// TestObjectsTellNobodyThatTheirWatchIsLost: a failure of the API server concerns all names at once.
func TestObjectsTellNobodyThatTheirWatchIsLost(t *testing.T) {
	c := newCluster(t)
	a := c.configMap("a")
	c.create(a, map[string]string{"test": c.namespace})
	objects := c.runObjects()
	objects.Follow("key", nil, []object.Ref{a})
	c.told("key", "a is there", func() bool { return objects.Get(a).State == object.Present })
	c.wire.sever()
	kit.True(c, "nothing is known any more", func() bool { return objects.Get(a).State == object.Unknown })
	c.wire.mend()
	kit.True(c, "a is known again", func() bool { return objects.Get(a).State == object.Present })
	if len(c.changed) > 0 {
		t.Errorf("%s is told that the watch was lost", <-c.changed)
	}
}
