package observe_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	"github.com/workwire/workwire/test/kit"
)

func (c *cluster) runObjects() *observe.Objects {
	objects := observe.NewObjects(observe.ObjectsConfig{
		Client: c.agent, Selector: "test=" + c.namespace, Changed: func(key string, _ object.Ref, _ string) { c.report(key) }, Logger: discard,
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
