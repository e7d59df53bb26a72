// Package intake is the hub's way in: it writes the statuses that agents report
// into the status of their ManifestWorks, and lets a deleted work go when its
// agent says that everything is gone from the cluster.
//
//	in, err := intake.New(intake.Config{Works: cache, Client: client, Logger: logger})
//	...
//	err = in.Intake(ctx, status)
//
// It is the writing half of link.Works; the link makes one call per work at a
// time, with the newest status only, and repeats a call that failed.
//
// A status costs one patch, or nothing when it says what is stored already.
// Every write is for one UID: a work that was deleted and made anew under the
// same name gets nothing of its predecessor's.
package intake

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

// Config is what an [Intake] is made of. All fields but Registerer are required.
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

// Intake writes statuses. Its methods may be called from any goroutine, for one
// work from one at a time.
type Intake struct {
	cfg      Config
	writes   *prometheus.CounterVec
	released *prometheus.CounterVec
}

// New makes an intake. It does no I/O. It fails when the metrics are registered
// already.
func New(cfg Config) (*Intake, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, []string{"result"})
	}
	i := &Intake{
		cfg: cfg,
		writes: counter("status_writes_total", "Statuses taken in, by result: written, unchanged, gone (the work), "+
			"refused (by the API server, for good) or failed (tried again)."),
		released: counter("finalizers_removed_total", "Finalizers taken from ManifestWorks whose cluster is done, by result: ok, gone (the work) or failed (tried again)."),
	}
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{i.writes, i.released} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("intake: %w", err)
			}
		}
	}
	return i, nil
}

// Intake stores s in the status of its work, as it is, and takes the hub's
// finalizer away when s says Deleted of a work that is being deleted. A work
// that is not there any more is no error. An error asks for another call.
func (i *Intake) Intake(ctx context.Context, s *wire.Status) error {
	work, ok := i.cfg.Works.Latest(s.UID)
	if !ok {
		i.writes.WithLabelValues("gone").Inc()
		return nil
	}
	p := decide(work, &s.Status)
	if p.store {
		if err := i.store(ctx, work, &s.Status, int64(s.Generation)); err != nil {
			return err
		}
	} else if !p.release {
		i.writes.WithLabelValues("unchanged").Inc()
	}
	if p.release {
		return i.release(ctx, work)
	}
	return nil
}

// Refused stores c, why the newest spec of a work can not be published, in the
// work's status.
func (i *Intake) Refused(ctx context.Context, uid types.UID, c metav1.Condition) error {
	work, ok := i.cfg.Works.Latest(uid)
	if !ok {
		return nil
	}
	status := work.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, c) {
		i.writes.WithLabelValues("unchanged").Inc()
		return nil
	}
	i.warn(work, c.Reason, c.Message)
	return i.store(ctx, work, status, c.ObservedGeneration)
}

// warn sends an event about a work.
func (i *Intake) warn(work *workv1.ManifestWork, reason, message string) {
	if i.cfg.Recorder != nil {
		i.cfg.Recorder.Event(work, corev1.EventTypeWarning, reason, message)
	}
}

// Outdated tells the operator of an agent that holds a newer spec than the hub:
// a Kubernetes API counts generations itself, so a person has to act.
func (i *Intake) Outdated(uid types.UID, held wire.Generation) {
	log := i.cfg.Logger.With("uid", uid, "heldGeneration", held)
	if work, ok := i.cfg.Works.Get(uid); ok {
		log = log.With("work", work.Name, "cluster", work.Namespace, "generation", work.Generation)
		i.warn(work, "Outdated", fmt.Sprintf("The agent holds generation %d and ignores this one, %d: delete the work and create it anew", held, work.Generation))
	}
	log.Warn("the agent holds a newer generation of the work than the hub and ignores this one, " +
		"as after the hub was restored from a backup: delete the work and create it anew")
}

// store writes status to work.
func (i *Intake) store(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, generation int64) error {
	err := i.patchStatus(ctx, work, status)
	switch {
	case err == nil:
		i.writes.WithLabelValues("written").Inc()
		return nil
	case apierrors.IsNotFound(err):
		i.writes.WithLabelValues("gone").Inc()
		return nil
	case !apierrors.IsConflict(err) && !isRefusal(err):
		i.writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write the status of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	// Either answer also comes when the work was made anew.
	current, getErr := i.current(ctx, work)
	switch {
	case getErr != nil:
		i.writes.WithLabelValues("failed").Inc()
		return getErr
	case current == nil:
		i.writes.WithLabelValues("gone").Inc()
		return nil
	case apierrors.IsConflict(err):
		i.writes.WithLabelValues("failed").Inc()
		return fmt.Errorf("write the status of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	i.writes.WithLabelValues("refused").Inc()
	i.cfg.Logger.Error("the API server refuses the work's status", "work", work.Name, "cluster", work.Namespace,
		"uid", work.UID, "generation", generation, "error", err)
	err = i.patchStatus(ctx, work, unstorable(&current.Status, generation, err))
	if err != nil && !apierrors.IsNotFound(err) && !isRefusal(err) {
		return fmt.Errorf("write a condition of ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}

func (i *Intake) patchStatus(ctx context.Context, work *workv1.ManifestWork, status *workv1.ManifestWorkStatus) error {
	patch, err := statusPatch(work.UID, status)
	if err != nil {
		return err
	}
	written, err := i.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
		Patch(ctx, work.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		i.cfg.Works.Wrote(written)
	}
	return err
}

// release takes the hub's finalizer from work, which its cluster is done with.
func (i *Intake) release(ctx context.Context, work *workv1.ManifestWork) error {
	log := i.cfg.Logger.With("work", work.Name, "cluster", work.Namespace, "uid", work.UID)
	fail := func(err error) error {
		i.released.WithLabelValues("failed").Inc()
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
		written, err := i.cfg.Client.WorkV1().ManifestWorks(work.Namespace).
			Patch(ctx, work.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		switch {
		case err == nil:
			i.released.WithLabelValues("ok").Inc()
			i.cfg.Works.Wrote(written)
			log.Debug("the cluster is done with the deleted work")
			return nil
		case apierrors.IsNotFound(err):
			i.released.WithLabelValues("gone").Inc()
			return nil
		case attempt > 0 || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
			return fail(err)
		}
		// The list is another one than the cache knows.
		current, err := i.current(ctx, work)
		switch {
		case err != nil:
			return fail(err)
		case current == nil:
			i.released.WithLabelValues("gone").Inc()
			return nil
		}
		work = current
	}
}

// current reads work from the API server; nil when it is gone or another one.
func (i *Intake) current(ctx context.Context, work *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	current, err := i.cfg.Client.WorkV1().ManifestWorks(work.Namespace).Get(ctx, work.Name, metav1.GetOptions{})
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
