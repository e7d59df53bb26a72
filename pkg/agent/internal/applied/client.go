// Package applied manages AppliedManifestWorks: for each work, the cluster stores what was applied,
// so that it is deleted again even if the agent lost its state.
//
//	amws := applied.NewClient(applied.Config{Client: client, Owner: applied.Owner{AgentID: id}, Changed: ...})
//	go amws.Run(ctx)
//	known, _ := amws.Get(name)
//	amw, err := amws.Ensure(ctx, known, hubHash, work, intended) // before applying
//	...
//	amw, err = amws.UpdateStatus(ctx, amw, applied.Status{Resources: resources, Transitions: text}) // after
//
// An AppliedManifestWork also stores when the work's conditions last changed ([EncodeTransitions]),
// so that a restart of the agent does not change these times, and since when its work does not
// exist, which [DecideEviction] uses.
//
// plan.go, eviction.go and transitions.go decide without I/O; owner.go has whose an AppliedManifestWork is.
package applied

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/watchcache"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// Config configures [NewClient].
type Config struct {
	// Client for the agent's cluster. Required.
	Client workclientv1.WorkV1Interface
	// Owner of the AppliedManifestWorks; its AgentID is required.
	Owner
	// Changed is called with the name and resource version of an AppliedManifestWork that another
	// client changed or deleted. It must not block. Required.
	Changed func(name, version string)
	// Logger; required.
	Logger *slog.Logger
}

// Client reads and writes the AppliedManifestWorks of a cluster. It reads from memory, which one
// watch keeps up to date. It is safe for concurrent use, but calls for one AppliedManifestWork must
// not be concurrent.
type Client struct {
	config Config
	client workclientv1.AppliedManifestWorkInterface
	rest   rest.Interface
	view   *watchcache.Cache[*workv1.AppliedManifestWork]
	pruned atomic.Bool // the API server drops transitions

	digestsPruned atomic.Bool // the API server drops fieldsDigest

	listed atomic.Pointer[error] // the result of the last list or watch

	checks checks
}

// NewClient returns a Client that knows nothing until Run has read the cluster.
func NewClient(config Config) *Client {
	return &Client{
		config: config,
		client: config.Client.AppliedManifestWorks(),
		rest:   config.Client.RESTClient(),
		view: watchcache.New(func() *workv1.AppliedManifestWork { return &workv1.AppliedManifestWork{} },
			func(name types.NamespacedName, version string) { config.Changed(name.Name, version) }),
	}
}

// notServed is what to do on a cluster without the definition.
const notServed = "install deploy/crds/work.open-cluster-management.io_appliedmanifestworks.yaml on the cluster"

// Run watches the AppliedManifestWorks until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	c.view.Run(ctx, watchcache.Watch{
		Name: "appliedmanifestworks", Client: c.config.Client, Logger: c.config.Logger, NotServed: notServed,
		List: listwatch.Of(c.client, nil, func(_ context.Context, err error) { c.listed.Store(&err) }),
	})
	return nil
}

// Err returns why the AppliedManifestWorks could not be listed or watched last, and what to do.
func (c *Client) Err() error {
	err := ptr.Deref(c.listed.Load(), nil)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list AppliedManifestWorks: %w: %s", err, notServed)
	}
	return err
}

// Synced returns a channel that is closed once all AppliedManifestWorks are known.
func (c *Client) Synced() <-chan struct{} { return c.view.Synced() }

// All returns all AppliedManifestWorks that are known.
func (c *Client) All() iter.Seq[*workv1.AppliedManifestWork] { return c.view.All() }

// Get returns the AppliedManifestWork with that name, which the caller may modify, unless an agent has it that serves the
// cluster under another name.
func (c *Client) Get(name string) (*workv1.AppliedManifestWork, bool) {
	amw, ok := c.view.Get(types.NamespacedName{Name: name})
	if !ok || c.config.foreign(amw) {
		return nil, false
	}
	return amw, true
}

// Ensure returns the AppliedManifestWork of work after it has created or updated it, so that it
// lists intended: the objects that the caller is about to apply or still has to delete. amw is the
// result of Get, or nil. Ensure sends one request if there is something to write, and none
// otherwise. It does not change an AppliedManifestWork that is being deleted. It returns a conflict if amw is not
// as the caller knows it: what it lists must have been read before it is replaced, or objects would stay.
func (c *Client) Ensure(ctx context.Context, amw *workv1.AppliedManifestWork, hubHash string, work Work, intended []object.Ref) (*workv1.AppliedManifestWork, error) {
	name, err := Name(hubHash, work.Name)
	if err != nil {
		return nil, err
	}
	want, err := c.desired(name, hubHash, work, intended)
	if err != nil {
		return nil, err
	}
	if amw == nil {
		if known, ok := c.view.Get(types.NamespacedName{Name: name}); ok && c.config.foreign(known) {
			return nil, taken(known)
		}
		created, err := c.client.Create(ctx, want, metav1.CreateOptions{FieldManager: workv1.DefaultFieldManager})
		if err == nil {
			c.view.Learn(created)
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create AppliedManifestWork %s: %w", name, err)
		}
		found, getErr := c.get(ctx, name)
		switch {
		case getErr != nil:
			return nil, getErr
		case c.config.foreign(found):
			return nil, taken(found)
		}
		// The caller did not know what it lists, and so cannot have decided what to drop.
		return nil, apierrors.NewConflict(workv1.GroupVersion.WithResource("appliedmanifestworks").GroupResource(), name, err)
	}
	if amw.DeletionTimestamp != nil {
		return amw, nil
	}
	patch, err := updatePatch(amw, want, intended)
	if err != nil || patch == nil {
		return amw, err
	}
	return c.patch(ctx, amw, types.MergePatchType, patch)
}

// SetHeld notes on amw why the deletion of its work is held, in one request or none.
func (c *Client) SetHeld(ctx context.Context, amw *workv1.AppliedManifestWork, reason string) error {
	annotations := heldPatch(amw, reason)
	if len(annotations) == 0 {
		return nil
	}
	_, err := c.annotate(ctx, amw, annotations)
	return err
}

// annotate sets annotations of amw, removes those that are nil, and returns amw in its new state.
func (c *Client) annotate(ctx context.Context, amw *workv1.AppliedManifestWork, annotations map[string]any) (*workv1.AppliedManifestWork, error) {
	return c.patch(ctx, amw, types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": amw.UID, "annotations": annotations}})
}

// SetKept stores which objects stay when the work is deleted, in one request or none, and returns amw in its new state.
func (c *Client) SetKept(ctx context.Context, amw *workv1.AppliedManifestWork, kept []object.Ref) (*workv1.AppliedManifestWork, error) {
	annotations := map[string]any{KeptAnnotation: nil}
	switch {
	case sets.New(Kept(amw)...).Equal(sets.New(kept...)):
		return amw, nil
	case len(kept) > 0:
		value, err := encodeKept(kept)
		if err != nil {
			return nil, err
		}
		annotations[KeptAnnotation] = value
	}
	return c.annotate(ctx, amw, annotations)
}

// Delete deletes amw and returns it in its new state, or nil if it does not exist any more. Its
// finalizer keeps it until RemoveFinalizer.
func (c *Client) Delete(ctx context.Context, amw *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	if amw.DeletionTimestamp != nil {
		return amw, nil
	}
	if !slices.Contains(amw.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		// Another client created it. Without the finalizer it would disappear before its objects.
		var err error
		if amw, err = c.replace(ctx, amw, "finalizers", append(slices.Clone(amw.Finalizers), workv1.AppliedManifestWorkFinalizer)); err != nil {
			return nil, err
		}
	}
	// The generated client discards the response to DELETE, but RemoveFinalizer needs the new
	// resource version.
	response, err := c.rest.Delete().Resource("appliedmanifestworks").Name(amw.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &amw.UID}}).Do(ctx).Get()
	if err != nil {
		return nil, c.forgetIfGone(amw, fmt.Errorf("delete AppliedManifestWork %s: %w", amw.Name, err))
	}
	deleting, ok := response.(*workv1.AppliedManifestWork)
	if !ok { // it had no finalizers
		c.forget(amw)
		return nil, nil
	}
	c.view.Learn(deleting)
	return deleting, nil
}

// RemoveFinalizer removes the agent's finalizer from amw, whose objects do not exist any more. It
// returns a conflict if amw has changed: try again with the new one.
func (c *Client) RemoveFinalizer(ctx context.Context, amw *workv1.AppliedManifestWork) error {
	if !slices.Contains(amw.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		return nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(amw.Finalizers), func(f string) bool { return f == workv1.AppliedManifestWorkFinalizer })
	if _, err := c.replace(ctx, amw, "finalizers", finalizers); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if len(finalizers) == 0 {
		c.forget(amw)
	}
	return nil
}

// replace changes a field of the metadata of amw, unless amw has changed.
func (c *Client) replace(ctx context.Context, amw *workv1.AppliedManifestWork, field string, value any) (*workv1.AppliedManifestWork, error) {
	return c.patch(ctx, amw, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": amw.UID, "resourceVersion": amw.ResourceVersion, field: value,
	}})
}

func (c *Client) get(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	amw, err := c.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	c.view.Learn(amw)
	return amw, nil
}

func (c *Client) patch(ctx context.Context, amw *workv1.AppliedManifestWork, kind types.PatchType, patch any, subresources ...string) (*workv1.AppliedManifestWork, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch AppliedManifestWork %s: %w", amw.Name, err)
	}
	patched, err := c.client.Patch(ctx, amw.Name, kind, data, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager}, subresources...)
	if apierrors.IsConflict(err) {
		_, _ = c.get(ctx, amw.Name) // or else it is known once the watch shows it
	}
	if err != nil {
		return nil, c.forgetIfGone(amw, fmt.Errorf("patch AppliedManifestWork %s: %w", amw.Name, err))
	}
	c.view.Learn(patched)
	return patched, nil
}

// patchStatus changes fields of the status, unless amw has changed: what is replaced must have been read.
// It uses a JSON patch, because the API server drops the metadata of a merge patch of the status
// before it compares UID and version, and would apply it to whichever object has the name.
func (c *Client) patchStatus(ctx context.Context, amw *workv1.AppliedManifestWork, changes ...kube.JSONPatchOperation) (*workv1.AppliedManifestWork, error) {
	patch := append(kube.AtVersion(amw), kube.TestUID(amw.UID))
	if s := &amw.Status; len(s.AppliedResources) == 0 && s.EvictionStartTime == nil && s.Transitions == "" {
		// A field can only be added to an existing status.
		patch = append(patch, kube.JSONPatchOperation{Op: "add", Path: "/status", Value: struct{}{}})
	}
	return c.patch(ctx, amw, types.JSONPatchType, append(patch, changes...), "status")
}

// forgetIfGone removes amw from memory if err is NotFound, of the object and not of its kind or of a proxy before the API server, and returns err.
func (c *Client) forgetIfGone(amw *workv1.AppliedManifestWork, err error) error {
	if apierrors.IsNotFound(err) && !object.IsNotServed(err) {
		c.forget(amw)
	}
	return err
}

// forget removes amw, which is gone, from memory.
func (c *Client) forget(amw *workv1.AppliedManifestWork) {
	c.view.Forget(types.NamespacedName{Name: amw.Name}, amw.UID)
}
