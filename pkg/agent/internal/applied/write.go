package applied

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

const (
	// writers is how many statuses that were put off are written at a time.
	writers = 4
	// loggedFailures is how many failures of a write in a row are worth a line: the first ones are
	// conflicts with a change that the watch is about to show.
	loggedFailures = 3
	// stopTimeout bounds the writes at the end of Run.
	stopTimeout = 3 * time.Second
)

// Status is the part of the status that [Client.UpdateStatus] writes.
type Status struct {
	// Resources are the existing objects of the work.
	Resources []Resource
	// Transitions are the work's conditions as [EncodeTransitions] returns them; "" removes them.
	Transitions string
	// MayWait allows to put the status off: other works wait, and nothing of this one is complete,
	// which would be applied again if it were forgotten, or being removed, which users look for.
	MayWait bool
}

// UpdateStatus writes status to amw, as far as it differs, in one request or none. It leaves other
// fields of the status alone. It returns an error if amw does not exist any more or another
// AppliedManifestWork has its name.
//
// A status that may wait, and only names objects which amw has as intended, is put off, see
// [Config.RecordDelay]. From then on all methods return it as if it were written.
//
// If the cluster has another definition of AppliedManifestWorks than ours, the API server drops the
// transitions and the digests. Client detects this and no longer writes them.
func (c *Client) UpdateStatus(ctx context.Context, amw *workv1.AppliedManifestWork, status Status) (*workv1.AppliedManifestWork, error) {
	before, err := c.drafts.remove(ctx, amw.Name, amw.UID)
	if err != nil {
		return nil, err
	}
	recorded := amw
	if before != nil {
		if recorded, err = c.recorded(amw.Name, amw.UID); err != nil {
			return nil, err
		}
	}
	want := content{list: statusOf(status.Resources), transitions: status.Transitions}
	if c.digestsPruned.Load() {
		removeDigests(want.list)
	}
	changes := c.changes(recorded, want)
	if len(changes) > 0 && c.drafts.quiet > 0 && status.MayWait && mayWait(recorded, want) {
		c.drafts.put(amw.Name, amw.UID, want, before, time.Now())
		c.drafts.overlay(recorded)
		return recorded, nil
	}
	return c.replace(ctx, recorded, want, changes, before)
}

// writeNow writes the draft of amw, if it has one.
func (c *Client) writeNow(ctx context.Context, amw *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	d, err := c.drafts.remove(ctx, amw.Name, amw.UID)
	if err != nil || d == nil {
		return amw, err
	}
	recorded, err := c.recorded(amw.Name, amw.UID)
	if err != nil {
		return nil, err
	}
	return c.replace(ctx, recorded, d.content, c.changes(recorded, d.content), d)
}

// replace writes want in the place of before, a draft that was removed, or nil. If that fails, the draft
// is back.
func (c *Client) replace(ctx context.Context, recorded *workv1.AppliedManifestWork, want content, changes kube.JSONPatch, before *draft) (*workv1.AppliedManifestWork, error) {
	patched, err := c.write(ctx, recorded, want, changes)
	if err != nil && !apierrors.IsNotFound(err) {
		c.drafts.restore(recorded.Name, before)
	}
	return patched, err
}

// recorded returns an AppliedManifestWork as the cluster has it, without a draft.
func (c *Client) recorded(name string, uid types.UID) (*workv1.AppliedManifestWork, error) {
	recorded, ok := c.view.Get(types.NamespacedName{Name: name})
	if !ok || recorded.UID != uid {
		return nil, apierrors.NewNotFound(workv1.GroupVersion.WithResource("appliedmanifestworks").GroupResource(), name)
	}
	return recorded, nil
}

// mayWait reports whether a crash before want is written to recorded loses nothing: want names all
// that recorded names, unchanged, and beside that only objects that recorded has as intended. An
// agent that starts finds these by the intent, and reads them.
func mayWait(recorded *workv1.AppliedManifestWork, want content) bool {
	if recorded.DeletionTimestamp != nil || recorded.Status.EvictionStartTime != nil {
		return false
	}
	intended, err := decodeIntent(recorded.Annotations[IntentAnnotation])
	if err != nil {
		return false
	}
	safe := make(sets.Set[workv1.ResourceIdentifier], len(intended))
	for _, ref := range intended {
		safe.Insert(workv1.ResourceIdentifier{Group: ref.Group, Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name})
	}
	unchanged := make(sets.Set[workv1.AppliedManifestResourceMeta], len(recorded.Status.AppliedResources))
	unchanged.Insert(recorded.Status.AppliedResources...)
	named := 0
	for _, resource := range want.list {
		switch {
		case unchanged.Has(resource):
			named++
		case !safe.Has(resource.ResourceIdentifier):
			return false
		}
	}
	return named == len(unchanged)
}

// changes returns the operations from the status of recorded to want.
func (c *Client) changes(recorded *workv1.AppliedManifestWork, want content) (changes kube.JSONPatch) {
	if !equality.Semantic.DeepEqual(want.list, recorded.Status.AppliedResources) {
		changes = append(changes, kube.JSONPatchOperation{Op: "add", Path: "/status/appliedResources", Value: want.list})
	}
	switch have := recorded.Status.Transitions; {
	case c.pruned.Load() || want.transitions == have:
	case want.transitions == "":
		changes = append(changes, kube.JSONPatchOperation{Op: "remove", Path: "/status/transitions"})
	default:
		changes = append(changes, kube.JSONPatchOperation{Op: "add", Path: "/status/transitions", Value: want.transitions})
	}
	return changes
}

// write makes changes, if there are any, which lead to want, and finds out what the API server drops of them.
func (c *Client) write(ctx context.Context, recorded *workv1.AppliedManifestWork, want content, changes kube.JSONPatch) (*workv1.AppliedManifestWork, error) {
	if len(changes) == 0 {
		return recorded, nil
	}
	writes := func(path string) bool {
		return slices.ContainsFunc(changes, func(o kube.JSONPatchOperation) bool { return o.Op == "add" && o.Path == path })
	}
	var unlessChanged kube.JSONPatch
	if writes("/status/appliedResources") {
		var err error
		if unlessChanged, err = c.unlessChanged(recorded); err != nil {
			return nil, err
		}
	}
	patched, err := c.patchStatus(ctx, recorded, slices.Concat(unlessChanged, changes)...)
	if err != nil {
		return nil, err
	}
	if writes("/status/appliedResources") && removeDigests(slices.Clone(want.list)) && !removeDigests(slices.Clone(patched.Status.AppliedResources)) && !c.digestsPruned.Swap(true) {
		c.config.Logger.Warn("the definition of AppliedManifestWorks on the cluster has no fieldsDigest: after a restart of the agent " +
			"each object is read and may be written again; install this project's definition and restart the agent")
	}
	if writes("/status/transitions") && patched.Status.Transitions == "" && !c.pruned.Swap(true) {
		c.config.Logger.Warn("the definition of AppliedManifestWorks on the cluster has no transitions: a restart of the agent " +
			"resets transition times and completion; install this project's definition and restart the agent")
	}
	return patched, nil
}

// unlessChanged returns the beginning of a patch that fails with a conflict if the list of recorded is not the one that the
// cluster has, or that error: a list that was restored from a backup names objects that nobody else knows.
func (c *Client) unlessChanged(recorded *workv1.AppliedManifestWork) (kube.JSONPatch, error) {
	known, err := c.recorded(recorded.Name, recorded.UID)
	if err != nil {
		return nil, nil //nolint:nilerr // the patch says so
	}
	if !equality.Semantic.DeepEqual(known.Status.AppliedResources, recorded.Status.AppliedResources) {
		return nil, listChanged(recorded.Name)
	}
	return kube.AtVersion(known), nil
}

// listChanged returns the conflict about an AppliedManifestWork whose list is not the one that was read.
func listChanged(name string) error {
	return apierrors.NewConflict(workv1.GroupVersion.WithResource("appliedmanifestworks").GroupResource(), name,
		errors.New("its list of objects has changed since it was read"))
}

// removeDigests removes the digests of a list, and reports whether it had any.
func removeDigests(list []workv1.AppliedManifestResourceMeta) bool {
	had := false
	for i := range list {
		had = had || list[i].FieldsDigest != ""
		list[i].FieldsDigest = ""
	}
	return had
}

// writeDrafts writes the statuses that were put off, until ctx ends, and then those that are left.
func (c *Client) writeDrafts(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, wait := c.drafts.due(time.Now())
		if len(due) > 0 {
			c.writeAll(ctx, due)
			continue
		}
		timer.Stop()
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-c.drafts.first:
		}
	}
	// Another agent may serve the cluster by now: write fails then, as the version is another.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	c.writeAll(last, c.drafts.end())
}

// writeAll writes those drafts of names that are due.
func (c *Client) writeAll(ctx context.Context, names []string) {
	var group errgroup.Group
	group.SetLimit(writers)
	var failed sync.Once
	for _, name := range names {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			d := c.drafts.beginWrite(name, time.Now())
			if d == nil {
				return nil
			}
			version, err := c.writeDraft(ctx, name, d)
			missed, failures := c.drafts.endWrite(name, d, version, time.Now())
			if missed != "" {
				c.config.Changed(name, missed)
			}
			if err != nil && failures >= loggedFailures {
				failed.Do(func() {
					c.config.Logger.Warn("writing what was applied failed; trying again", "appliedManifestWork", name, "error", err)
				})
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// writeDraft writes d. It returns the version of the AppliedManifestWork since, "" if the write failed
// and is to be tried again.
func (c *Client) writeDraft(ctx context.Context, name string, d *draft) (string, error) {
	recorded, _ := c.recorded(name, d.uid) // the error is that it is gone
	if recorded == nil {
		c.drafts.drop(name, d.uid)
		return "", nil
	}
	if recorded.DeletionTimestamp != nil {
		return "", nil // its removal writes what is left
	}
	changes := c.changes(recorded, d.content)
	if len(changes) > 0 {
		guard := kube.JSONPatchOperation{Op: "test", Path: "/metadata/resourceVersion", Value: recorded.ResourceVersion}
		changes = append(kube.JSONPatch{guard}, changes...)
	}
	patched, err := c.write(ctx, recorded, d.content, changes)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil // and forgotten
	case err != nil:
		return "", err
	}
	return patched.ResourceVersion, nil
}
