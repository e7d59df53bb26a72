package applied_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// quietly has c put statuses off for quiet, and runs its client. stop ends it.
func (c *cluster) quietly(quiet time.Duration) (changes *atomic.Int64, stop func()) {
	c.Helper()
	changes = &atomic.Int64{}
	c.config.RecordDelay, c.config.Changed = quiet, func(name, _ string) {
		if strings.HasPrefix(name, c.hub) { // and not of another test
			changes.Add(1)
		}
	}
	c.applied = applied.NewClient(c.config)
	stop = kit.Run(c, "applied", c.applied.Run)
	<-c.applied.Synced()
	c.requests.Take()
	return changes, stop
}

// intend creates the AppliedManifestWork of objects, which are about to be applied.
func (c *cluster) intend(names ...string) *workv1.AppliedManifestWork {
	c.Helper()
	var refs []object.Ref
	for _, name := range names {
		refs = append(refs, configMap(name).Ref)
	}
	name, err := applied.Name(c.hub, "web")
	kit.NoError(c, err)
	known, _ := c.applied.Get(name)
	amw, err := c.applied.Ensure(c.Context(), known, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1"}, refs)
	kit.NoError(c, err)
	return amw
}

func resources(names ...string) []applied.Resource {
	var list []applied.Resource
	for _, name := range names {
		list = append(list, configMap(name))
	}
	return list
}

func TestNewObjectsAreListedOnceQuiet(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	changes, _ := c.quietly(300 * time.Millisecond)
	amw := c.intend("a", "b")
	c.wantRequests(1)
	for _, status := range []applied.Status{
		{MayWait: true, Resources: resources("a"), Transitions: "one"}, {MayWait: true, Resources: resources("a", "b"), Transitions: "two"},
	} {
		amw = c.updateStatus(amw, status)
	}
	c.wantRequests(0)
	known, ok := c.applied.Get(amw.Name)
	for _, read := range []*workv1.AppliedManifestWork{amw, known} {
		if !ok || read.Status.Transitions != "two" || len(read.Status.AppliedResources) != 2 || read.Status.AppliedResources[0].UID != "uid-a" {
			t.Errorf("it reads as %+v", read.Status)
		}
	}
	changes.Store(0) // the watch may have been faster than the answer to the creation
	c.eventuallyListed(amw.Name, "two", "a", "b")
	c.wantRequests(1)
	if n := changes.Load(); n != 0 {
		t.Errorf("its own writes count as %d changes", n)
	}
	// A change of the metadata returns it as well.
	c.updateStatus(amw, applied.Status{MayWait: true, Resources: resources("a", "b"), Transitions: "put off"})
	if read := c.intend("a", "b", "c"); read.Status.Transitions != "put off" {
		t.Errorf("after a change of its intent it reads as %+v", read.Status)
	}
	c.eventuallyListed(amw.Name, "put off", "a", "b")
	c.wantRequests(2)
	// What names less, or another object, is written at once.
	amw = c.updateStatus(amw, applied.Status{MayWait: true, Resources: resources("a"), Transitions: "put off"})
	c.wantRequests(1)
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a"), Transitions: "put off"})
	// So is what may not wait.
	c.updateStatus(amw, applied.Status{Resources: resources("a"), Transitions: "three"})
	c.wantRequests(1)
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a"), Transitions: "three"})
}

func (c *cluster) eventuallyListed(name, transitions string, names ...string) {
	c.Helper()
	kit.Eventually(c, "the status is written", func() error {
		live, err := c.client.WorkV1().AppliedManifestWorks().Get(c.Context(), name, metav1.GetOptions{})
		if err == nil && live.Status.Transitions != transitions {
			err = fmt.Errorf("it has %q", live.Status.Transitions)
		}
		return err
	})
	c.wantStatus(name, workv1.AppliedManifestWorkStatus{AppliedResources: listed(names...), Transitions: transitions})
}

// A list that has changed meanwhile, as by the restore of a backup, is not replaced: it may name objects that are to
// be removed.
func TestListOfABackup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.quietly(0)
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
	c.quietly(0)
	amw := c.updateStatus(c.intend("a", "b"), applied.Status{Resources: resources("a")})
	restored := amw.DeepCopy()
	restored.Status.AppliedResources = listed("a", "b")
	_, err := c.client.WorkV1().AppliedManifestWorks().UpdateStatus(t.Context(), restored, metav1.UpdateOptions{})
	kit.NoError(t, err)
	intend := func(known *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
		return c.applied.Ensure(t.Context(), known, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1"}, []object.Ref{configMap("a").Ref, configMap("c").Ref})
	}
	if _, err := intend(amw); !apierrors.IsConflict(err) {
		t.Errorf("over a list that was not read: %v", err)
	}
	known, _ := c.applied.Get(amw.Name)
	if list := known.Status.AppliedResources; len(list) != 2 {
		t.Errorf("then it is known to list %+v", list)
	}
	if _, err := intend(known); err != nil {
		t.Errorf("over the list that was read: %v", err)
	}
}

// The same if only the intent has changed: what it names might be nowhere else.
func TestIntentOverTheIntentOfABackup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.quietly(0)
	amw := c.intend("a", "b")
	restored := amw.DeepCopy()
	restored.Annotations[applied.IntentAnnotation] = `{"v1/configmaps":{"` + configMap("a").Namespace + `":["a","lost"]}}`
	_, err := c.client.WorkV1().AppliedManifestWorks().Update(t.Context(), restored, metav1.UpdateOptions{})
	kit.NoError(t, err)
	intend := func(known *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
		return c.applied.Ensure(t.Context(), known, c.hub, applied.Work{Name: "web", UID: "1", Source: "hub1"}, []object.Ref{configMap("a").Ref, configMap("c").Ref})
	}
	if _, err := intend(amw); !apierrors.IsConflict(err) {
		t.Errorf("over an intent that was not read: %v", err)
	}
	known, _ := c.applied.Get(amw.Name)
	if named, err := applied.Resources(known); err != nil || len(named) != 2 || named[1].Name != "lost" {
		t.Errorf("then it is known to name %v, %v", named, err)
	}
	if _, err := intend(known); err != nil {
		t.Errorf("over the intent that was read: %v", err)
	}
}

// Objects that stay although nobody may write them are listed as long as the spec says so.
func TestKeptObjects(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.quietly(0)
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

// A status that undoes one which was put off must not be overtaken by it.
func TestDraftIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	c.quietly(time.Hour)
	amw := c.updateStatus(c.intend("a", "b"), applied.Status{MayWait: true, Resources: resources("a", "b"), Transitions: "one"})
	amw = c.updateStatus(amw, applied.Status{MayWait: true})
	c.wantRequests(1)
	if len(amw.Status.AppliedResources) > 0 || amw.Status.Transitions != "" {
		t.Errorf("it reads as %+v", amw.Status)
	}
	amw = c.updateStatus(amw, applied.Status{MayWait: true, Resources: resources("a")})
	// An eviction needs the status to exist.
	start := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Local())
	amw = c.setEviction(amw, &start)
	c.wantRequests(2)
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a"), EvictionStartTime: &start})
}

// What is deleted before it was written is deleted by its UIDs, and leaves nothing behind.
func TestDraftOfADeletedWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	_, stop := c.quietly(time.Hour)
	amw := c.updateStatus(c.intend("a"), applied.Status{MayWait: true, Resources: resources("a"), Transitions: "one"})
	going, err := c.applied.Delete(t.Context(), amw)
	kit.NoError(t, err)
	found, err := applied.Resources(going)
	if err != nil || len(found) != 1 || found[0].UID != "uid-a" {
		t.Errorf("it names %+v: %v", found, err)
	}
	kit.NoError(t, c.applied.RemoveFinalizer(t.Context(), going))
	successor := c.intend("a")
	if len(successor.Status.AppliedResources) > 0 {
		t.Errorf("the successor reads as %+v", successor.Status)
	}
	stop()
	c.wantStatus(successor.Name, workv1.AppliedManifestWorkStatus{})
}

func TestDraftsAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	_, stop := c.quietly(time.Hour)
	amw := c.updateStatus(c.intend("a"), applied.Status{MayWait: true, Resources: resources("a"), Transitions: "one"})
	stop()
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{AppliedResources: listed("a"), Transitions: "one"})
}

// An agent that no longer serves the cluster must not replace what its successor wrote.
func TestDraftOfAFormerAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, plane.REST())
	ended, end := context.WithCancel(t.Context())
	c.config.RecordDelay = time.Hour
	c.applied = applied.NewClient(c.config) // its watch shows nothing
	amw := c.updateStatus(c.intend("a"), applied.Status{MayWait: true, Resources: resources("a"), Transitions: "one"})
	if _, err := c.client.WorkV1().AppliedManifestWorks().Patch(t.Context(), amw.Name, types.MergePatchType,
		[]byte(`{"status":{"transitions":"of the successor"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	end()
	kit.NoError(t, c.applied.Run(ended))
	c.wantStatus(amw.Name, workv1.AppliedManifestWorkStatus{Transitions: "of the successor"})
}
