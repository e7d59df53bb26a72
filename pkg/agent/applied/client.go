// Package applied keeps the AppliedManifestWorks: the cluster's own record of
// what was applied for each work, from which it is removed again, whatever
// happened to the agent in between.
//
//	records := applied.NewClient(applied.Config{Client: client, AgentID: id, Changed: ...})
//	go records.Run(ctx)
//	known, _ := records.Get(name)
//	record, err := records.Ensure(ctx, known, hubHash, work, intended) // before applying
//	...
//	record, err = records.UpdateStatus(ctx, record, applied.Status{Resources: resources, Transitions: text}) // after
//
// A record also remembers when the work's conditions last changed
// ([EncodeTransitions]), so that a restart does not, and since when no work stands
// behind it, which [DecideEviction] goes by.
//
// What is decided stands in plan.go, eviction.go and transitions.go, without I/O.
package applied

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/watchcache"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
)

// Config configures [NewClient].
type Config struct {
	// Client for the agent's cluster. Required.
	Client workclient.Interface
	// AgentID is written to every record. Required.
	AgentID string
	// Changed is called with the name of a record that was changed or deleted, as
	// far as is known by somebody else, and with the resource version at which it
	// was. It must not block. Required.
	Changed func(name, version string)
	// Logger; required.
	Logger *slog.Logger
}

// Records are the AppliedManifestWorks of a cluster, held in memory from one
// watch. It is safe for concurrent use, but two calls about one record must not
// run at the same time.
type Client struct {
	config Config
	client workclientv1.AppliedManifestWorkInterface
	rest   rest.Interface
	view   *watchcache.Cache[*workv1.AppliedManifestWork]
	pruned atomic.Bool // the API server drops transitions
}

// NewClient returns Records that know nothing yet; Run fills them.
func NewClient(config Config) *Client {
	return &Client{
		config: config,
		client: config.Client.WorkV1().AppliedManifestWorks(),
		rest:   config.Client.WorkV1().RESTClient(),
		view: watchcache.New(func() *workv1.AppliedManifestWork { return &workv1.AppliedManifestWork{} },
			func(name types.NamespacedName, version string) { config.Changed(name.Name, version) }),
	}
}

// Run watches the records until ctx ends.
func (r *Client) Run(ctx context.Context) error {
	r.view.Run(ctx, watchcache.Watch{Name: "appliedmanifestworks", Client: r.config.Client, Logger: r.config.Logger, List: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return r.client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return r.client.Watch(ctx, options)
		},
	}})
	return nil
}

// Synced is closed once all records are known.
func (r *Client) Synced() <-chan struct{} { return r.view.Synced() }

// All yields all records known.
func (r *Client) All() iter.Seq[*workv1.AppliedManifestWork] { return r.view.All() }

// Get returns the record of that name; the caller owns it.
func (r *Client) Get(name string) (*workv1.AppliedManifestWork, bool) {
	return r.view.Get(types.NamespacedName{Name: name})
}

// Ensure returns the record of work, made or brought up to date where needed, so
// that it names all of intended: what the caller is about to apply, and what it
// still has to remove. Record is what Get gave of it just now, nil if there is none.
// It costs no request when nothing is new, else one. A record that is being deleted
// is returned as it is.
func (r *Client) Ensure(ctx context.Context, record *workv1.AppliedManifestWork, hubHash string, work Work, intended []object.Ref) (*workv1.AppliedManifestWork, error) {
	name, err := Name(hubHash, work.Name)
	if err != nil {
		return nil, err
	}
	desired, err := r.desiredRecord(name, hubHash, work, intended)
	if err != nil {
		return nil, err
	}
	if record == nil {
		created, err := r.client.Create(ctx, desired, metav1.CreateOptions{FieldManager: workv1.DefaultFieldManager})
		if err == nil {
			r.view.Learn(created)
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create AppliedManifestWork %s: %w", name, err)
		}
		if record, err = r.read(ctx, name); err != nil {
			return nil, err
		}
	}
	if record.DeletionTimestamp != nil {
		return record, nil
	}
	patch, err := adopt(record, desired, intended)
	if err != nil || patch == nil {
		return record, err
	}
	return r.patch(ctx, record, types.MergePatchType, patch)
}

// Contents is what [Client.Record] writes.
type Status struct {
	// Resources are the objects of the work that exist.
	Resources []Resource
	// Transitions are the work's conditions in short, see [EncodeTransitions]; ""
	// drops those that are recorded.
	Transitions string
}

// Record writes what exists on the cluster for record, as far as that differs
// from what it says: one request, or none. It fails when record is gone or
// another one has its name, and leaves the rest of its status alone.
//
// A definition of AppliedManifestWorks that is not this project's knows nothing
// of transitions: the API server drops them. Records notices, and writes none
// from then on.
func (r *Client) UpdateStatus(ctx context.Context, record *workv1.AppliedManifestWork, status Status) (*workv1.AppliedManifestWork, error) {
	var changes []operation
	if list := statusOf(status.Resources); !equality.Semantic.DeepEqual(list, record.Status.AppliedResources) {
		changes = append(changes, operation{Op: "add", Path: "/status/appliedResources", Value: list})
	}
	sent := false
	switch have := record.Status.Transitions; {
	case r.pruned.Load() || status.Transitions == have:
	case status.Transitions == "":
		changes = append(changes, operation{Op: "remove", Path: "/status/transitions"})
	default:
		changes = append(changes, operation{Op: "add", Path: "/status/transitions", Value: status.Transitions})
		sent = true
	}
	if len(changes) == 0 {
		return record, nil
	}
	patched, err := r.patchStatus(ctx, record, changes...)
	if err == nil && sent && patched.Status.Transitions == "" && !r.pruned.Swap(true) {
		r.config.Logger.Warn("the cluster's definition of AppliedManifestWorks keeps no transitions: after a restart of the agent, " +
			"transition times and completion start anew; install this project's definition, then restart the agent to change that")
	}
	return patched, err
}

// Delete asks for record to be deleted and returns it as it is then, or nil when
// it is gone at once. Its finalizer holds it until Release.
func (r *Client) Delete(ctx context.Context, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	if record.DeletionTimestamp != nil {
		return record, nil
	}
	if !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		// Somebody else made it. Without the finalizer it would be gone before its
		// objects are.
		held, err := r.patch(ctx, record, types.MergePatchType, map[string]any{"metadata": map[string]any{
			"uid": record.UID, "resourceVersion": record.ResourceVersion,
			"finalizers": append(slices.Clone(record.Finalizers), workv1.AppliedManifestWorkFinalizer),
		}})
		if err != nil {
			return nil, err
		}
		record = held
	}
	// The generated client throws away what DELETE answers: the record as it is
	// now, whose resource version Release needs.
	answer, err := r.rest.Delete().Resource("appliedmanifestworks").Name(record.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &record.UID}}).Do(ctx).Get()
	if err != nil {
		return nil, r.gone(record, fmt.Errorf("delete AppliedManifestWork %s: %w", record.Name, err))
	}
	going, ok := answer.(*workv1.AppliedManifestWork)
	if !ok { // nothing held it
		r.view.Forget(types.NamespacedName{Name: record.Name}, record.UID)
		return nil, nil
	}
	r.view.Learn(going)
	return going, nil
}

// Release takes the agent's finalizer off record, whose objects are gone. A
// record that somebody changed meanwhile gives a conflict: try again with the
// record of that time.
func (r *Client) RemoveFinalizer(ctx context.Context, record *workv1.AppliedManifestWork) error {
	if !slices.Contains(record.Finalizers, workv1.AppliedManifestWorkFinalizer) {
		return nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(record.Finalizers), func(f string) bool { return f == workv1.AppliedManifestWorkFinalizer })
	_, err := r.patch(ctx, record, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": record.UID, "resourceVersion": record.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if len(finalizers) == 0 {
		r.view.Forget(types.NamespacedName{Name: record.Name}, record.UID)
	}
	return nil
}

func (r *Client) read(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	record, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	r.view.Learn(record)
	return record, nil
}

func (r *Client) patch(ctx context.Context, record *workv1.AppliedManifestWork, kind types.PatchType, patch any, subresources ...string) (*workv1.AppliedManifestWork, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch AppliedManifestWork %s: %w", record.Name, err)
	}
	patched, err := r.client.Patch(ctx, record.Name, kind, data, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager}, subresources...)
	if err != nil {
		return nil, r.gone(record, fmt.Errorf("patch AppliedManifestWork %s: %w", record.Name, err))
	}
	r.view.Learn(patched)
	return patched, nil
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchStatus changes fields of the status, if record is still what has its
// name. It is a JSON patch, because the API server drops the metadata of a patch
// of the status before it compares the UID: a merge patch would land on whatever
// has the name now.
func (r *Client) patchStatus(ctx context.Context, record *workv1.AppliedManifestWork, changes ...operation) (*workv1.AppliedManifestWork, error) {
	patch := []operation{{Op: "test", Path: "/metadata/uid", Value: record.UID}}
	if s := &record.Status; len(s.AppliedResources) == 0 && s.EvictionStartTime == nil && s.Transitions == "" {
		// A field can only be added to a status that is there, and a status can only
		// be added whole: nobody must have put one in between.
		patch = append(patch, operation{Op: "test", Path: "/metadata/resourceVersion", Value: record.ResourceVersion},
			operation{Op: "add", Path: "/status", Value: struct{}{}})
	}
	return r.patch(ctx, record, types.JSONPatchType, append(patch, changes...), "status")
}

// gone forgets record when err says that it does not exist any more.
func (r *Client) gone(record *workv1.AppliedManifestWork, err error) error {
	if apierrors.IsNotFound(err) {
		r.view.Forget(types.NamespacedName{Name: record.Name}, record.UID)
	}
	return err
}
