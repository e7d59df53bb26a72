package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Create stores and publishes a work. It returns a copy of what is stored.
func (m *manifestWorks) Create(ctx context.Context, work *workv1.ManifestWork, opts metav1.CreateOptions) (*workv1.ManifestWork, error) {
	if work == nil {
		return nil, errNoWork()
	}
	dry, err := dryRun(opts.DryRun)
	if err := cmp.Or(m.client.waitReady(ctx), err); err != nil {
		return nil, err
	}
	if m.namespace != "" && work.Namespace != "" && work.Namespace != m.namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the work, %q, must be the namespace %q of the request",
			work.Namespace, m.namespace))
	}
	return m.client.create(ctx, cmp.Or(m.namespace, work.Namespace), work, dry)
}

// newWork returns a work as it is stored when it is created, without a generation.
func (c *Client) newWork(namespace string, from *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	if from.ResourceVersion != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	work := &workv1.ManifestWork{ObjectMeta: *from.ObjectMeta.DeepCopy(), Spec: *from.Spec.DeepCopy()}
	normalizeManifests(&work.Spec)
	if work.Name == "" && work.GenerateName != "" {
		work.Name = work.GenerateName + rand.String(5)
	}
	work.Namespace = namespace
	work.UID = c.uid(namespace, work.Name)
	work.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	work.DeletionTimestamp, work.DeletionGracePeriodSeconds = nil, nil
	work.ManagedFields = nil
	if !slices.Contains(work.Finalizers, workv1.ManifestWorkFinalizer) {
		work.Finalizers = append(work.Finalizers, workv1.ManifestWorkFinalizer)
	}
	if errs := c.validate(work); len(errs) > 0 {
		return nil, refused(work.Name, errs)
	}
	return work, nil
}

// create stores a work.
func (c *Client) create(ctx context.Context, namespace string, from *workv1.ManifestWork, dry bool) (*workv1.ManifestWork, error) {
	work, err := c.newWork(namespace, from)
	if err != nil {
		return nil, err
	}
	made, err := c.memory.update(ctx, func(v *view) (*change, error) {
		if old, ok := v.get(work.UID); ok {
			err := apierrors.NewAlreadyExists(worksResource, work.Name)
			if old.work.DeletionTimestamp != nil {
				err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
			}
			return nil, err
		}
		work.Generation = int64(v.floor) + 1
		made := &storedWork{work: work, firstGeneration: wire.Generation(work.Generation)}
		return unlessDryRun(dry, &change{new: made, cause: trace.SpanContextFromContext(ctx)}), nil
	})
	if err != nil {
		return nil, err
	}
	return resultOf(made, work), nil
}

// Update changes the spec, labels, annotations, finalizers and owner references of a work, not its
// status.
func (m *manifestWorks) Update(ctx context.Context, work *workv1.ManifestWork, opts metav1.UpdateOptions) (*workv1.ManifestWork, error) {
	if work == nil {
		return nil, errNoWork()
	}
	uid, dry, err := m.resolveWrite(ctx, work.Name, opts.DryRun)
	if err != nil {
		return nil, err
	}
	wanted := work.DeepCopy()
	wanted.Namespace = cmp.Or(wanted.Namespace, m.namespace)
	return m.client.update(ctx, uid, work.Name, dry, func(*workv1.ManifestWork) (*workv1.ManifestWork, error) { return wanted, nil })
}

// update replaces the work with this UID by the one that desired returns, which must not share
// memory with its argument.
func (c *Client) update(
	ctx context.Context, uid types.UID, name string, dry bool, desired func(*workv1.ManifestWork) (*workv1.ManifestWork, error),
) (*workv1.ManifestWork, error) {
	var result *workv1.ManifestWork
	made, err := c.memory.update(ctx, func(v *view) (*change, error) {
		old, ok := v.get(uid)
		if !ok {
			return nil, apierrors.NewNotFound(worksResource, name)
		}
		wanted, err := desired(old.work)
		if err != nil {
			return nil, err
		}
		next, changed, err := c.replacement(old, wanted)
		if result = next; err != nil || !changed {
			return nil, err
		}
		removed := next.DeletionTimestamp != nil && len(next.Finalizers) == 0
		return unlessDryRun(dry, &change{old: old, new: old.with(next), removed: removed, cause: trace.SpanContextFromContext(ctx)}), nil
	})
	if err != nil {
		return nil, err // the writer may still set result
	}
	return resultOf(made, result), nil
}

// replacement returns what an update to wanted makes of old, and whether that changes anything.
func (c *Client) replacement(old *storedWork, wanted *workv1.ManifestWork) (next *workv1.ManifestWork, changed bool, err error) {
	next, err = c.applyUpdate(old.work, wanted)
	if err != nil {
		return nil, false, err
	}
	if old.work.Generation == next.Generation && equality.Semantic.DeepEqual(old.work.ObjectMeta, next.ObjectMeta) {
		return old.work, false, nil
	}
	return next, true, nil
}

// applyUpdate returns a copy of old with the fields of wanted that an update may change, or why the
// update is invalid.
func (c *Client) applyUpdate(old, wanted *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(worksResource, old.Name, fmt.Errorf(format, args...))
	}
	switch {
	case wanted.Name != old.Name || wanted.Namespace != old.Namespace:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("work %s/%s cannot be renamed to %s/%s",
			old.Namespace, old.Name, wanted.Namespace, wanted.Name))
	case wanted.UID != "" && wanted.UID != old.UID:
		return nil, conflict("Precondition failed: UID in precondition: %v, UID in object meta: %v", wanted.UID, old.UID)
	case wanted.ResourceVersion != "" && wanted.ResourceVersion != old.ResourceVersion:
		return nil, conflict("the object has been modified; please apply your changes to the latest version and try again")
	}
	next := shallowCopy(old)
	next.Labels, next.Annotations = wanted.Labels, wanted.Annotations
	next.OwnerReferences, next.Finalizers = wanted.OwnerReferences, wanted.Finalizers
	next.ResourceVersion = wanted.ResourceVersion
	next.Spec = wanted.Spec
	normalizeManifests(&next.Spec)
	if old.DeletionTimestamp == nil && !slices.Contains(next.Finalizers, workv1.ManifestWorkFinalizer) {
		next.Finalizers = append(slices.Clone(next.Finalizers), workv1.ManifestWorkFinalizer)
	}
	errs := validation.ValidateObjectMetaUpdate(&next.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	errs = append(errs, c.validate(next)...)
	if len(errs) > 0 {
		return nil, refused(old.Name, errs)
	}
	next.ResourceVersion = old.ResourceVersion
	if !equality.Semantic.DeepEqual(old.Spec, next.Spec) {
		next.Generation++
	}
	return next, nil
}

// UpdateStatus fails: only the agent changes the status.
func (m *manifestWorks) UpdateStatus(_ context.Context, work *workv1.ManifestWork, _ metav1.UpdateOptions) (*workv1.ManifestWork, error) {
	if work == nil {
		return nil, errNoWork()
	}
	return nil, errStatusUpdate(work.Name)
}

func errNoWork() error { return apierrors.NewBadRequest("a work is required, and nil was given") }

func errStatusUpdate(name string) error {
	err := apierrors.NewMethodNotSupported(worksResource, "update")
	err.ErrStatus.Message = fmt.Sprintf("the status of ManifestWork %q cannot be written: it comes from the agent of its cluster", name)
	return err
}

// Delete marks a work for deletion. It is removed once its agent has reported Deleted.
func (m *manifestWorks) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	uid, dry, err := m.resolveWrite(ctx, name, opts.DryRun)
	if err != nil {
		return err
	}
	preconditions := opts.Preconditions.DeepCopy() // see applyOnce
	_, err = m.client.memory.update(ctx, func(v *view) (*change, error) {
		old, ok := v.get(uid)
		if !ok {
			return nil, apierrors.NewNotFound(worksResource, name)
		}
		if err := precondition(old.work, preconditions); err != nil {
			return nil, err
		}
		if old.work.DeletionTimestamp != nil {
			return nil, nil
		}
		next := shallowCopy(old.work)
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		next.DeletionTimestamp, next.DeletionGracePeriodSeconds = &now, new(int64)
		next.Generation++ // as on an API server
		return unlessDryRun(dry, &change{old: old, new: old.with(next), cause: trace.SpanContextFromContext(ctx)}), nil
	})
	return err
}

func precondition(work *workv1.ManifestWork, wanted *metav1.Preconditions) error {
	var err error
	switch {
	case wanted == nil:
	case wanted.UID != nil && *wanted.UID != work.UID:
		err = fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *wanted.UID, work.UID)
	case wanted.ResourceVersion != nil && *wanted.ResourceVersion != work.ResourceVersion:
		err = fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*wanted.ResourceVersion, work.ResourceVersion)
	}
	if err == nil {
		return nil
	}
	return apierrors.NewConflict(worksResource, work.Name, err)
}

// DeleteCollection marks all works that match for deletion. It continues after an error and returns
// the first one.
func (m *manifestWorks) DeleteCollection(ctx context.Context, opts metav1.DeleteOptions, listOpts metav1.ListOptions) error {
	list, err := m.List(ctx, listOpts)
	if err != nil {
		return err
	}
	var first error
	for i := range list.Items {
		one := &manifestWorks{client: m.client, namespace: list.Items[i].Namespace}
		err := one.Delete(ctx, list.Items[i].Name, opts)
		if err != nil && !apierrors.IsNotFound(err) && first == nil {
			first = err
		}
	}
	return first
}

// resolveWrite is resolve for a write with this DryRun option.
func (m *manifestWorks) resolveWrite(ctx context.Context, name string, dryRunOption []string) (uid types.UID, dry bool, err error) {
	if uid, err = m.resolve(ctx, name); err == nil {
		dry, err = dryRun(dryRunOption)
	}
	return uid, dry, err
}

// dryRun parses the DryRun option.
func dryRun(option []string) (bool, error) {
	for _, value := range option {
		if value != metav1.DryRunAll {
			return false, apierrors.NewBadRequest(fmt.Sprintf("dryRun %q is not supported: use %q", value, metav1.DryRunAll))
		}
	}
	return len(option) > 0, nil
}

// unlessDryRun returns ch, or nil in a dry run.
func unlessDryRun(dry bool, ch *change) *change {
	if dry {
		return nil
	}
	return ch
}

// resultOf returns a copy of the work that an update stored, or of result if it changed nothing.
func resultOf(made *change, result *workv1.ManifestWork) *workv1.ManifestWork {
	if made != nil {
		result = made.new.work
	}
	return result.DeepCopy()
}
