package applied_test

import (
	"testing"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// TestRecheck: after Recheck, what the client remembers is read once more. It does not return an
// AppliedManifestWork that does not exist any more, nor one that another has replaced.
func TestRecheck(t *testing.T) {
	t.Parallel()
	c, other := newCluster(t, plane.REST()), newCluster(t, plane.REST())
	current := func() *workv1.AppliedManifestWork {
		t.Helper()
		amw, err := c.applied.Current(t.Context(), c.hub+"-web")
		kit.NoError(t, err)
		return amw
	}
	first := c.ensure(nil)
	c.requests.Take()
	c.applied.Recheck()
	for _, requests := range []int{1, 0} {
		if amw := current(); amw == nil || amw.UID != first.UID {
			t.Errorf("it returned %v", amw)
		}
		c.wantRequests(requests)
	}

	c.forget(first.Name)
	if amw := current(); amw == nil || amw.UID != first.UID {
		t.Error("it was read although there was no reason to")
	}
	c.applied.Recheck()
	if amw := current(); amw != nil {
		t.Error("it returned one that is gone")
	}
	c.ensure(nil)

	c.forget(first.Name)
	third := other.ensure(nil)
	c.applied.Recheck()
	c.requests.Take()
	for _, requests := range []int{1, 0} {
		if amw := current(); amw == nil || amw.UID != third.UID {
			t.Errorf("it returned %v, and %s exists", amw, third.UID)
		}
		c.wantRequests(requests)
	}
}
