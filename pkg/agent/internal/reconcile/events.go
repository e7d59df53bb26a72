package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// recoverTimeout bounds how long Recover waits for watches.
const recoverTimeout = 30 * time.Second

// SpecChanged handles a change of a work in the inbox.
func (r *Reconciler) SpecChanged(key inbox.Key) {
	name, known := r.Table.name(key)
	if work, held := r.Inbox.Get(key); held {
		name, known = r.naming.name(key.Source, work.Meta.Name), true
		r.Table.add(name, key)
	} else if known {
		r.Table.remove(name, key)
	}
	if known {
		r.Table.retryNow(name)
	}
}

// Superseded ends a work whose name another work took.
func (r *Reconciler) Superseded(key inbox.Key) {
	r.Outbox.Forget(key)
	if name, ok := r.Table.name(key); ok {
		r.Table.remove(name, key)
	}
}

// SourceAnswered enqueues the AppliedManifestWorks that have no work, since a source has now told
// which works it has.
func (r *Reconciler) SourceAnswered() {
	for amw := range r.Applied.All() {
		if r.Owner.Owns(amw) && len(r.Table.keys(amw.Name)) == 0 {
			r.Table.Enqueue(amw.Name)
		}
	}
}

// Recover learns the state of the cluster from before a restart: the AppliedManifestWorks, and the
// objects that they name. It must return before Run is called, and before specs are received. It
// reports false if ctx ended first, and fails if another agent serves the cluster under another name.
func (r *Reconciler) Recover(ctx context.Context) (recovered bool, err error) {
	defer func() {
		if !recovered {
			r.Table.queue.ShutDown() // as Run would, which is not called
		}
	}()
	select {
	case <-r.Applied.Synced():
	case <-ctx.Done():
		return false, nil
	}
	err = r.Owner.Check(r.Applied.All())
	if err == nil {
		err = r.Applied.WriteClusterName(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	for amw := range r.Applied.All() {
		r.recover(amw)
	}
	// A type whose watch neither delivers nor fails must not delay the others.
	bounded, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	r.Objects.Wait(bounded)
	r.Logger.Info("cluster state recovered", "works", r.Inbox.Len())
	return ctx.Err() == nil, nil
}

// recover watches the objects of an AppliedManifestWork and adds its work to the inbox by name.
func (r *Reconciler) recover(amw *workv1.AppliedManifestWork) {
	if source := r.naming.source(amw); !r.Owner.Owns(amw) || r.naming.name(source, amw.Spec.ManifestWorkName) != amw.Name {
		return // another agent's or another hub's
	}
	resources, err := applied.Resources(amw)
	if err != nil {
		r.Logger.Warn(intentUnreadable, "appliedManifestWork", amw.Name, "error", err)
	}
	e := r.Table.acquire(amw.Name)
	defer r.Table.release(e)
	r.watch(e, interest{objects: refsOf(resources)})
	if r.recoverWork(amw) && amw.Annotations[workv1.HeldAnnotation] != "" {
		r.Table.Enqueue(amw.Name)
	}
}

// recoverWork adds the work of an AppliedManifestWork to the inbox by name, until the work's source
// sends it. It reports whether the work is there: not if its AppliedManifestWork does not name it,
// and if another work has its name.
func (r *Reconciler) recoverWork(amw *workv1.AppliedManifestWork) bool {
	source, uid := r.naming.source(amw), amw.Annotations[applied.UIDAnnotation]
	if uid == "" || source == "" {
		return false
	}
	key := inbox.Key{Source: source, UID: types.UID(uid)}
	known := inbox.Recovered{SourceIdentity: amw.Annotations[applied.SourceIdentityAnnotation], HeldReason: amw.Annotations[workv1.HeldAnnotation]}
	if !r.Inbox.Recover(key, r.Cluster, amw.Spec.ManifestWorkName, known) {
		return false
	}
	r.Table.add(amw.Name, key)
	return true
}
