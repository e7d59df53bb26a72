package applied_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// watch runs the client of c.
func (c *cluster) watch() {
	c.Helper()
	kit.Run(c, "applied", c.applied.Run)
	<-c.applied.Synced()
}

// intend creates the AppliedManifestWork of objects, which are about to be applied.
func (c *cluster) intend(names ...string) *workv1.AppliedManifestWork {
	c.Helper()
	name, err := applied.Name(c.hub, "web")
	kit.NoError(c, err)
	known, _ := c.applied.Get(name)
	amw, err := c.intendOver(known, names...)
	kit.NoError(c, err)
	return amw
}

// intendOver writes the intent to apply ConfigMaps over what is known.
func (c *cluster) intendOver(known *workv1.AppliedManifestWork, names ...string) (*workv1.AppliedManifestWork, error) {
	var refs []object.Ref
	for _, name := range names {
		refs = append(refs, configMap(name).Ref)
	}
	return c.applied.Ensure(c.Context(), known, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1"}, refs)
}

func resources(names ...string) []applied.Resource {
	var list []applied.Resource
	for _, name := range names {
		list = append(list, configMap(name))
	}
	return list
}

// A list that has changed meanwhile, as by the restore of a backup, is not replaced: it may name objects that are to
// be removed.
func TestListOfABackup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.watch()
	amw := c.updateStatus(c.intend("a", "b"), applied.Status{Resources: resources("a")})
	amws := c.client.WorkV1().AppliedManifestWorks()
	restored, err := amws.Get(t.Context(), amw.Name, metav1.GetOptions{})
	kit.NoError(t, err)
	restored.Status.AppliedResources = listed("a", "b")
	_, err = amws.UpdateStatus(t.Context(), restored, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if _, err := c.applied.UpdateStatus(t.Context(), amw, applied.Status{}); !apierrors.IsConflict(err) {
		t.Errorf("a list that was not read is replaced: %v", err)
	}
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a", "b")})
}

// The same if the list has changed when the intent is written: the caller has not read what is to be removed.
func TestIntentOverABackup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.watch()
	amw := c.updateStatus(c.intend("a", "b"), applied.Status{Resources: resources("a")})
	restored := amw.DeepCopy()
	restored.Status.AppliedResources = listed("a", "b")
	_, err := c.client.WorkV1().AppliedManifestWorks().UpdateStatus(t.Context(), restored, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if _, err := c.intendOver(amw, "a", "c"); !apierrors.IsConflict(err) {
		t.Errorf("over a list that was not read: %v", err)
	}
	known, _ := c.applied.Get(amw.Name)
	if list := known.Status.AppliedResources; len(list) != 2 {
		t.Errorf("then it is known to list %+v", list)
	}
	if _, err := c.intendOver(known, "a", "c"); err != nil {
		t.Errorf("over the list that was read: %v", err)
	}
}

// The same if only the intent has changed: what it names might be nowhere else.
func TestIntentOverTheIntentOfABackup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.watch()
	amw := c.intend("a", "b")
	restored := amw.DeepCopy()
	restored.Annotations[applied.IntentAnnotation] = `{"v1/configmaps":{"` + configMap("a").Namespace + `":["a","lost"]}}`
	_, err := c.client.WorkV1().AppliedManifestWorks().Update(t.Context(), restored, metav1.UpdateOptions{})
	kit.NoError(t, err)
	if _, err := c.intendOver(amw, "a", "c"); !apierrors.IsConflict(err) {
		t.Errorf("over an intent that was not read: %v", err)
	}
	known, _ := c.applied.Get(amw.Name)
	if named, err := applied.Resources(known); err != nil || len(named) != 2 || named[1].Name != "lost" {
		t.Errorf("then it is known to name %v, %v", named, err)
	}
	if _, err := c.intendOver(known, "a", "c"); err != nil {
		t.Errorf("over the intent that was read: %v", err)
	}
}

// Objects that stay although nobody may write them are listed as long as the spec says so.
func TestKeptObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.watch()
	amw := c.intend("a", "b")
	if option := applied.DeleteOption(amw); option != nil {
		t.Errorf("without any: %+v", option)
	}
	for _, kept := range [][]object.Ref{{configMap("b").Ref}, {configMap("a").Ref, configMap("b").Ref}, nil} {
		var err error
		amw, err = c.applied.Ensure(t.Context(), amw, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1", Kept: kept}, nil)
		kit.NoError(t, err)
		var names []string
		if option := applied.DeleteOption(amw); option != nil {
			for _, rule := range option.SelectivelyOrphan.OrphaningRules {
				names = append(names, rule.Name)
			}
		}
		if len(names) != len(kept) || len(kept) > 0 && names[len(names)-1] != "b" {
			t.Errorf("%v stay, want %v", names, kept)
		}
	}
}
