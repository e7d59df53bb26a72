// Package statusreceiver is the hub's way in: it writes the statuses that agents report
// into the status of their ManifestWorks, and lets a deleted work go when its
// agent says that everything is gone from the cluster.
//
//	receiver, err := statusreceiver.New(statusreceiver.Config{Works: cache, Client: client, Logger: logger})
//	...
//	err = receiver.Receive(ctx, status)
//
// It is the writing half of delivery.WorkStore; the delivery engine makes one call per work at a
// time, with the newest status only, and repeats a call that failed.
//
// A status costs one patch, or nothing when it says what is stored already.
// Every write is for one UID: a work that was deleted and made anew under the
// same name gets nothing of its predecessor's.
package statusreceiver

import (
	"context"
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
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// ConditionStatusStored is set, to False, on a work whose reported status the
	// API server refuses, and goes with the next status that it takes.
	ConditionStatusStored = "StatusStored"
	// ReasonRefused is its reason.
	ReasonRefused = "Refused"
)

// Config is what a [Receiver] is made of. All fields but Registerer are required.
type Config struct {
	// Works tells what is stored, and is told of what is written.
	Works *works.Cache
	// Client writes.
	Client versioned.Interface
	// Recorder gets an event about each work that can not be published, or whose
	// cluster holds a newer one; nil for none.
	Recorder record.EventRecorder
	// Logger gets a debug line about each work that is let go, and one about failures that
	// repeating does not mend.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_status_writes_total and
	// workwire_hub_finalizers_removed_total; nil for none.
	Registerer prometheus.Registerer
}

// Receiver writes statuses. Its methods may be called from any goroutine, for one
// work from one at a time.
type Receiver struct {
	cfg      Config
	writes   *prometheus.CounterVec
	released *prometheus.CounterVec
}

// New returns a receiver. It does no I/O. It fails when the metrics are registered
// already.
func New(cfg Config) (*Receiver, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, []string{"result"})
	}
	r := &Receiver{
		cfg: cfg,
		writes: counter("status_writes_total", "Statuses taken in, by result: written, unchanged, gone (the work), "+
			"refused (by the API server, for good) or failed (tried again)."),
		released: counter("finalizers_removed_total", "Finalizers taken from ManifestWorks whose cluster is done, by result: ok, gone (the work) or failed (tried again)."),
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{r.writes, r.released} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("statusreceiver: %w", err)
			}
		}
	}
	return r, nil
}

// Receive stores s in the status of its work, as it is, and takes the hub's
// finalizer away when s says Deleted of a work that is being deleted. A work
// that is not there any more is no error. An error asks for another call.
func (r *Receiver) Receive(ctx context.Context, s *wire.Status) error {
	work, ok := r.cfg.Works.Latest(s.UID)
	if !ok {
		r.writes.WithLabelValues("gone").Inc()
		return nil
	}
	p := decide(work, &s.Status)
	if p.store {
		if err := r.store(ctx, work, &s.Status, int64(s.Generation)); err != nil {
			return err
		}
	} else if !p.release {
		r.writes.WithLabelValues("unchanged").Inc()
	}
	if p.release {
		return r.release(ctx, work)
	}
	return nil
}

// Refused stores c, why the newest spec of a work can not be published, in the
// work's status.
func (r *Receiver) Refused(ctx context.Context, uid types.UID, c metav1.Condition) error {
	work, ok := r.cfg.Works.Latest(uid)
	if !ok {
		return nil
	}
	status := work.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, c) {
		r.writes.WithLabelValues("unchanged").Inc()
		return nil
	}
	r.warn(work, c.Reason, c.Message)
	return r.store(ctx, work, status, c.ObservedGeneration)
}

// warn sends an event about a work.
func (r *Receiver) warn(work *workv1.ManifestWork, reason, message string) {
	if r.cfg.Recorder != nil {
		r.cfg.Recorder.Event(work, corev1.EventTypeWarning, reason, message)
	}
}

// Outdated tells the operator of an agent that holds a newer spec than the hub:
// a Kubernetes API counts generations itself, so a person has to act.
func (r *Receiver) Outdated(uid types.UID, held wire.Generation) {
	log := r.cfg.Logger.With("uid", uid, "heldGeneration", held)
	if work, ok := r.cfg.Works.Get(uid); ok {
		log = log.With("work", work.Name, "cluster", work.Namespace, "generation", work.Generation)
		r.warn(work, "Outdated", fmt.Sprintf("The agent holds generation %d and ignores this one, %d: delete the work and create it anew", held, work.Generation))
	}
	log.Warn("the agent holds a newer generation of the work than the hub and ignores this one, " +
		"as after the hub was restored from a backup: delete the work and create it anew")
}

// store writes status to work.
func (r *Receiver) store(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, generation int64) error {
	err := r.patchStatus(ctx, work, status)
	switch {
	case err == nil:
		r.writes.WithLabelValues("written").Inc()
		return nil
	case apierrors.IsNotFound(err):
		r.writes.WithLabelValues("gone").Inc()
		return nil
	case !apierrors.IsConflict(err) && !isRefusal(err):
		r.writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write the status of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	// Either answer also comes when the work was made anew.
	current, getErr := r.current(ctx, work)
	switch {
	case getErr != nil:
		r.writes.WithLabelValues("failed").Inc()
		return getErr
	case current == nil:
		r.writes.WithLabelValues("gone").Inc()
		return nil
	case apierrors.IsConflict(err):
		r.writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write the status of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	r.writes.WithLabelValues("refused").Inc()
	r.cfg.Logger.Error("the API server refuses the work's status", "work", work.Name, "cluster", work.Namespace,
		"uid", work.UID, "generation", generation, "error", err)
	err = r.patchStatus(ctx, work, unstorable(&current.Status, generation, err))
	if err != nil && !apierrors.IsNotFound(err) && !isRefusal(err) {
		return fmt.Errorf("write a condition of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}

func (r *Receiver) patchStatus(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) error {
	patch, err := statusPatch(work.UID, status)
	if err != nil {
		return err
	}
	written, err := r.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
		Patch(ctx, work.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		r.cfg.Works.Wrote(written)
	}
	return err
}

// release takes the hub's finalizer from work, which its cluster is done with.
func (r *Receiver) release(ctx context.Context, work *workv1.ManifestWork) error {
	log := r.cfg.Logger.With("work", work.Name, "cluster", work.Namespace, "uid", work.UID)
	fail := func(err error) error {
		r.released.WithLabelValues("failed").Inc()
		return fmt.Errorf("take the finalizer from ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	for attempt := 0; ; attempt++ {
		patch, err := releasePatch(work)
		if err != nil {
			return fail(err)
		}
		if patch == nil {
			return nil
		}
		written, err := r.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
			Patch(ctx, work.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		switch {
		case err == nil:
			r.released.WithLabelValues("ok").Inc()
			r.cfg.Works.Wrote(written)
			log.Debug("the cluster is done with the deleted work")
			return nil
		case apierrors.IsNotFound(err):
			r.released.WithLabelValues("gone").Inc()
			return nil
		case attempt > 0 || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
			return fail(err)
		}
		// The list is another one than the cache knows.
		current, err := r.current(ctx, work)
		switch {
		case err != nil:
			return fail(err)
		case current == nil:
			r.released.WithLabelValues("gone").Inc()
			return nil
		}
		work = current
	}
}

// current reads work from the API server; nil when it is gone or another one.
func (r *Receiver) current(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	current, err := r.cfg.Client.WorkV1().ManifestWorks(work.Namespace).Get(ctx, work.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	case current.UID != work.UID:
		return nil, nil
	default:
		return current, nil
	}
}

// isRefusal reports whether the API server will never take what it refused with
// err.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		strings.Contains(err.Error(), etcdTooLarge)
}

// etcdTooLarge is etcd's answer to an object beyond its limit, 1.5 MiB by
// default; API servers pass it on as an internal error without a reason.
const etcdTooLarge = "etcdserver: request is too large"
