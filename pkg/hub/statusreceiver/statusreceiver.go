// Package statusreceiver writes the statuses that agents report into their ManifestWorks, and
// removes the hub's finalizer from a deleted work when its agent confirms the deletion.
//
// A [Receiver] is the writing half of delivery.WorkStore. The engine makes one call per work at a
// time, with the newest status only, and retries a call that failed.
//
// A status costs one patch, or nothing when it is stored already. Each write is for one UID: a work
// that was deleted and created again under the same name gets no status of its predecessor.
package statusreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// ConditionStatusStored is False on a work whose reported status the API server refuses. The
	// next status that the API server accepts removes it.
	ConditionStatusStored = "StatusStored"
	// ReasonRefused is the reason of ConditionStatusStored.
	ReasonRefused = "Refused"
)

// Config configures a [Receiver].
type Config struct {
	// Works holds what is stored, and is told of writes; required.
	Works *works.Cache
	// Client writes; required.
	Client versioned.Interface
	// Delivery adds to statuses how far the newest spec has got; required.
	Delivery Delivery
	// Recorder gets an event about each work that cannot be published, or whose agent holds a newer
	// generation; default none.
	Recorder record.EventRecorder
	// Registerer gets the metrics workwire_hub_status_writes_total and
	// workwire_hub_finalizers_removed_total; default none.
	Registerer prometheus.Registerer
	// Logger gets a debug line about each finalizer that is removed, and a line about each failure
	// that no retry can repair; default slog.Default().
	Logger *slog.Logger
}

// Delivery knows how far the newest spec of each work has got: a *pending.Tracker. Its methods must
// not block.
type Delivery interface {
	// Answer returns the status to store for s, and whether that differs from the stored one.
	Answer(work *workv1.ManifestWork, s *wire.Status) (status *workv1.ManifestWorkStatus, changed bool)
	// Pending returns the status of a work whose newest spec has no answer, and whether that differs
	// from the stored one.
	Pending(work *workv1.ManifestWork) (status *workv1.ManifestWorkStatus, changed bool)
	// Stored is called when a status was stored, with what is said of the delivery before and after.
	Stored(before, after *workv1.DeliveryStatus)
}

// Receiver writes statuses. Its methods are safe for concurrent use, with one call per work at a
// time.
type Receiver struct {
	cfg      Config
	writes   *prometheus.CounterVec
	released *prometheus.CounterVec
}

// New returns a receiver. It does no I/O. It reports every fault of cfg, and fails when the metrics
// are registered already.
func New(cfg Config) (*Receiver, error) {
	errs := []error{required.Fields(cfg, "Works", "Client", "Delivery")}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, []string{"result"})
	}
	r := &Receiver{
		cfg: cfg,
		writes: counter("status_writes_total", "Statuses of works, received from agents or about their delivery, by result: written, unchanged, gone (the work), "+
			"refused (by the API server, not retried) or failed (retried)."),
		released: counter("finalizers_removed_total",
			"Finalizers removed from ManifestWorks that agents have deleted, by result: ok, gone (the work) or failed (retried)."),
	}
	if cfg.Registerer != nil {
		errs = append(errs, cfg.Registerer.Register(r.writes), cfg.Registerer.Register(r.released))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("statusreceiver: %w", err)
	}
	return r, nil
}

// UpdateStatus stores s in the status of its work, and removes the hub's finalizer when s has
// Deleted=True and the work is being deleted. A work that no longer exists is no error. An error
// asks for a retry.
func (r *Receiver) UpdateStatus(ctx context.Context, s *wire.Status) error {
	work, ok := r.latest(s.UID)
	if !ok {
		r.writes.WithLabelValues("gone").Inc()
		return nil
	}
	status, changed := r.cfg.Delivery.Answer(work, s)
	p := decide(work, status, changed)
	if p.store {
		if err := r.store(ctx, work, status, int64(s.Generation)); err != nil {
			return err
		}
		r.recordEvents(work, status)
	} else if !p.release {
		r.writes.WithLabelValues("unchanged").Inc()
	}
	if p.release {
		return r.release(ctx, work)
	}
	return nil
}

// SetCondition sets c, the reason why the newest spec of a work cannot be published, in the work's
// status. An error asks for a retry.
func (r *Receiver) SetCondition(ctx context.Context, uid types.UID, c metav1.Condition) error {
	work, ok := r.latest(uid)
	if !ok {
		return nil
	}
	status := work.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, c) {
		r.writes.WithLabelValues("unchanged").Inc()
		return nil
	}
	r.warn(work, c.Reason, c.Message)
	if pending, changed := r.cfg.Delivery.Pending(work); changed {
		status.Delivery = pending.Delivery
		if delivered := meta.FindStatusCondition(pending.Conditions, workv1.WorkDelivered); delivered != nil {
			meta.SetStatusCondition(&status.Conditions, *delivered)
		}
	}
	return r.store(ctx, work, status, c.ObservedGeneration)
}

// WritePending writes how far the newest spec of a work has got, unless the status says so. An error
// asks for a retry.
func (r *Receiver) WritePending(ctx context.Context, uid types.UID) error {
	work, ok := r.latest(uid)
	if !ok {
		return nil
	}
	status, changed := r.cfg.Delivery.Pending(work)
	if !changed {
		return nil
	}
	if err := r.store(ctx, work, status, work.Generation); err != nil {
		return err
	}
	r.recordEvents(work, status)
	return nil
}

// latest returns the work with uid as it was last seen or written here, with its whole status.
func (r *Receiver) latest(uid types.UID) (*workv1.ManifestWork, bool) {
	work, ok := r.cfg.Works.LatestByUID(uid)
	if !ok {
		return nil, false
	}
	return works.UnpackStatus(work), true
}

// recordEvents records events about what changed from the status of work to status.
func (r *Receiver) recordEvents(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) {
	if r.cfg.Recorder == nil {
		return
	}
	for _, e := range eventsFor(&work.Status, status) {
		r.cfg.Recorder.Event(work, e.kind, e.reason, e.message)
	}
}

// warn records an event about a work.
func (r *Receiver) warn(work *workv1.ManifestWork, reason, message string) {
	if r.cfg.Recorder != nil {
		r.cfg.Recorder.Event(work, corev1.EventTypeWarning, reason, message)
	}
}

// AgentAhead reports an agent that holds a newer generation than the hub, as after the hub's API
// was restored from a backup. It returns false: the API server assigns generations, so the engine
// publishes the work as authoritative.
func (r *Receiver) AgentAhead(uid types.UID, held wire.Generation) (raised bool) {
	log := r.cfg.Logger.With("uid", uid, "heldGeneration", held)
	if work, ok := r.cfg.Works.ByUID(uid); ok {
		log = log.With("work", work.Name, "cluster", work.Namespace, "generation", work.Generation)
		r.warn(work, "Outdated", fmt.Sprintf("The agent holds generation %d. It is sent this one, %d, as authoritative. "+
			"An agent of Open Cluster Management ignores it until the work is deleted and created again", held, work.Generation))
	}
	log.Warn("agent holds a newer generation of the work, sending this one as authoritative")
	return false
}

// store writes status to work.
func (r *Receiver) store(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, generation int64) error {
	err := r.patchStatus(ctx, work, status)
	result := "written"
	if apierrors.IsConflict(err) || isRefusal(err) {
		// The API server also answers so when the work was created again under its name.
		current, getErr := r.current(ctx, work)
		switch {
		case getErr != nil:
			result, err = "failed", getErr
		case current == nil:
			result, err = "gone", nil
		case isRefusal(err):
			r.writes.WithLabelValues("refused").Inc()
			return r.storeRefusal(ctx, current, status, generation, err)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		result, err = "gone", nil
	case err != nil:
		result = "failed"
	case result == "written":
		r.cfg.Delivery.Stored(work.Status.Delivery, status.Delivery)
	}
	r.writes.WithLabelValues(result).Inc()
	return err
}

// storeRefusal writes a condition to work in place of the status that the API server refused.
func (r *Receiver) storeRefusal(
	ctx context.Context, work *workv1.ManifestWork, refused *workv1.ManifestWorkStatus, generation int64, refusal error,
) error {
	r.cfg.Logger.Error("API server refused the work's status, not retrying", "work", work.Name, "cluster", work.Namespace,
		"uid", work.UID, "generation", generation, "error", refusal)
	status := unstorable(&work.Status, generation, refusal)
	if delivered := meta.FindStatusCondition(refused.Conditions, workv1.WorkDelivered); delivered != nil {
		meta.SetStatusCondition(&status.Conditions, *delivered)
	}
	err := r.patchStatus(ctx, work, status)
	if apierrors.IsNotFound(err) || isRefusal(err) {
		return nil
	}
	return err
}

func (r *Receiver) patchStatus(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) error {
	return r.patch(ctx, "write the status of", work, kube.StatusPatch(work.UID, status), "status")
}

// patch writes to work.
func (r *Receiver) patch(ctx context.Context, operation string, work *workv1.ManifestWork, patch kube.JSONPatch, subresources ...string) error {
	data, err := patch.Encode()
	if err != nil {
		return err
	}
	written, err := r.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
		Patch(ctx, work.Name, types.JSONPatchType, data, metav1.PatchOptions{}, subresources...)
	if err != nil {
		return fmt.Errorf("%s ManifestWork %s/%s: %w", operation, work.Namespace, work.Name, err)
	}
	r.cfg.Works.Wrote(written)
	return nil
}

// release removes the hub's finalizer from work.
func (r *Receiver) release(ctx context.Context, work *workv1.ManifestWork) error {
	for attempt := 0; ; attempt++ {
		patch := kube.RemoveFinalizerPatch(work, workv1.ManifestWorkFinalizer)
		if patch == nil {
			return nil
		}
		result := "ok"
		err := r.patch(ctx, "remove the finalizer from", work, patch)
		if attempt == 0 && (apierrors.IsInvalid(err) || apierrors.IsConflict(err)) {
			// The cache has an older list of finalizers.
			var current *workv1.ManifestWork
			if current, err = r.current(ctx, work); current != nil {
				work = current
				continue
			}
			result = "gone"
		}
		switch {
		case apierrors.IsNotFound(err):
			result, err = "gone", nil
		case err != nil:
			result = "failed"
		case result == "ok":
			r.cfg.Logger.Debug("finalizer removed", "work", work.Name, "cluster", work.Namespace, "uid", work.UID)
		}
		r.released.WithLabelValues(result).Inc()
		return err
	}
}

// current reads work from the API server; nil when it is gone, or another work has its name.
func (r *Receiver) current(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	current, err := r.cfg.Client.WorkV1().ManifestWorks(work.Namespace).Get(ctx, work.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	case current.UID != work.UID:
		return nil, nil
	default:
		return current, nil
	}
}

// isRefusal reports whether err is an answer of the API server that no retry can change.
func isRefusal(err error) bool {
	return err != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), etcdTooLarge))
}

// etcdTooLarge is etcd's answer to an object beyond its limit, 1.5 MiB by default. API servers pass
// it on as an internal error without a reason.
const etcdTooLarge = "etcdserver: request is too large"
