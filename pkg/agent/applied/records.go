// Package applied keeps the AppliedManifestWorks: the cluster's own record of
// what was applied for each work, from which it is removed again, whatever
// happened to the agent in between.
//
//	records := applied.NewRecords(applied.Config{Client: client, AgentID: id, Changed: ...})
//	go records.Run(ctx)
//	record, err := records.Ensure(ctx, hubHash, work, intended) // before applying
//	...
//	err = records.Record(ctx, record, resources)                // after
//
// What is decided stands in plan.go, without I/O.
package applied

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/observe"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
)

// Config configures [NewRecords].
type Config struct {
	// Client for the agent's cluster. Required.
	Client workclient.Interface
	// AgentID is written to every record. Required.
	AgentID string
	// Changed is called with the name of a record that somebody else changed or
	// deleted. It must not block. Required.
	Changed func(name string)
	// Logger; required.
	Logger *slog.Logger
}

// Records are the AppliedManifestWorks of a cluster, held in memory from one
// watch. It is safe for concurrent use, but two calls about one record must not
// run at the same time.
type Records struct {
	config Config
	client workclientv1.AppliedManifestWorkInterface
	rest   rest.Interface
	view   *observe.View[*workv1.AppliedManifestWork]
}

// NewRecords returns Records that know nothing yet; Run fills them.
func NewRecords(config Config) *Records {
	return &Records{
		config: config,
		client: config.Client.WorkV1().AppliedManifestWorks(),
		rest:   config.Client.WorkV1().RESTClient(),
		view: observe.NewView[*workv1.AppliedManifestWork](func(name types.NamespacedName) {
			config.Changed(name.Name)
		}),
	}
}

// Run watches the records until ctx ends.
func (r *Records) Run(ctx context.Context) error {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return r.client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return r.client.Watch(ctx, options)
		},
	}
	logger := logr.FromSlogHandler(r.config.Logger.Handler())
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(source, r.config.Client),
		&workv1.AppliedManifestWork{}, r.view, cache.ReflectorOptions{Name: "appliedmanifestworks", Logger: &logger},
	).RunWithContext(ctx)
	return nil
}

// Synced is closed once all records are known.
func (r *Records) Synced() <-chan struct{} { return r.view.Synced() }

// All yields all records known.
func (r *Records) All() iter.Seq[*workv1.AppliedManifestWork] { return r.view.All() }

// Get returns the record of that name. It is shared: read only.
func (r *Records) Get(name string) (*workv1.AppliedManifestWork, bool) {
	return r.view.Get(types.NamespacedName{Name: name})
}

// Ensure returns the record of work, made or brought up to date where needed, so
// that it names all of intended: what the caller is about to apply, and what it
// still has to remove. It costs no request when nothing is new, else one. A
// record that is being deleted is returned as it is.
func (r *Records) Ensure(ctx context.Context, hubHash string, work Work, intended []object.Ref) (*workv1.AppliedManifestWork, error) {
	name, err := Name(hubHash, work.Name)
	if err != nil {
		return nil, err
	}
	desired, err := r.desiredRecord(name, hubHash, work, intended)
	if err != nil {
		return nil, err
	}
	record, exists := r.Get(name)
	if !exists {
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

// Contents is what [Records.Record] writes.
type Contents struct {
	// Resources are the objects of the work that exist.
	Resources []Resource
	// Transitions are the work's conditions in short, see [EncodeTransitions].
	Transitions string
}

// Record writes what exists on the cluster for record, if that differs from what
// it says: one request, or none.
func (r *Records) Record(ctx context.Context, record *workv1.AppliedManifestWork, contents Contents) (*workv1.AppliedManifestWork, error) {
	list := statusOf(contents.Resources)
	if equality.Semantic.DeepEqual(list, record.Status.AppliedResources) && contents.Transitions == record.Status.Transitions {
		return record, nil
	}
	status := record.Status
	status.AppliedResources, status.Transitions = list, contents.Transitions
	// A JSON patch, because the API server drops the metadata of a patch of the
	// status before it compares the UID: a merge patch would land on whatever has
	// the name now.
	return r.patch(ctx, record, types.JSONPatchType, []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": record.UID},
		{"op": "add", "path": "/status", "value": status},
	}, "status")
}

// Delete asks for record to be deleted and returns it as it is then, or nil when
// it is gone at once. Its finalizer holds it until Release.
func (r *Records) Delete(ctx context.Context, record *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	if record.DeletionTimestamp != nil {
		return record, nil
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
func (r *Records) Release(ctx context.Context, record *workv1.AppliedManifestWork) error {
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

func (r *Records) read(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	record, err := r.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	r.view.Learn(record)
	return record, nil
}

func (r *Records) patch(ctx context.Context, record *workv1.AppliedManifestWork, kind types.PatchType, patch any, subresources ...string) (*workv1.AppliedManifestWork, error) {
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

// gone forgets record when err says that it does not exist any more.
func (r *Records) gone(record *workv1.AppliedManifestWork, err error) error {
	if apierrors.IsNotFound(err) {
		r.view.Forget(types.NamespacedName{Name: record.Name}, record.UID)
	}
	return err
}
