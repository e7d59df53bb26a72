package delivery

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// WorkStore stores the works of a source. A work's namespace is the name of its cluster.
//
// The Engine calls the methods from several goroutines concurrently. It does not modify the works
// that they return, which may be shared memory.
type WorkStore interface {
	// Get returns the work with this UID, and false if there is none. It does no I/O.
	Get(uid types.UID) (StoredWork, bool)

	// ListCluster returns all works of cluster. It does no I/O.
	ListCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork]

	// Clusters returns each cluster that has works once.
	Clusters() iter.Seq[wire.ClusterName]

	// Content returns a work with its whole spec and status, which the store may keep in another form:
	// but for it, the Engine reads the metadata and the conditions of a work. It does no I/O.
	Content(work *workv1.ManifestWork) *workv1.ManifestWork

	// Unknown decides about a work that an agent holds and the store does not have: [AnswerUnknown], unless
	// the store knows better. It does no I/O, and must not call the Engine, whose lock is held.
	Unknown(held wire.SpecVersion) UnknownAction

	// UpdateStatus stores a status that passed all checks of the protocol. The store owns s from
	// then on. Calls are serialized per work; of statuses that arrive while a call is in progress
	// only the newest is stored. A status with Deleted=True confirms that the agent deleted the
	// work's objects. The Engine retries a call that fails after a pause, so UpdateStatus must
	// return an error only if a retry can succeed.
	UpdateStatus(ctx context.Context, s *wire.Status) error

	// SetCondition sets a condition in the work's current status: the newest spec cannot be
	// published, for the reason in c. Statuses of older generations contain the condition too as
	// long as that is so. Calls are serialized with UpdateStatus and retried likewise.
	SetCondition(ctx context.Context, uid types.UID, c metav1.Condition) error

	// WriteDelivery is called for a work after [Engine.ReportDelivery]. Calls are serialized with
	// UpdateStatus and retried likewise.
	WriteDelivery(ctx context.Context, uid types.UID) error

	// AgentAhead is called when the agent holds a generation of the work that is higher than the
	// source's. The agent drops all specs of lower generations that are not authoritative: a source
	// that assigns generations itself must continue above held, and returns true then. Otherwise
	// the Engine publishes the work as authoritative, if the source has an identity.
	AgentAhead(uid types.UID, held wire.Generation) (raised bool)
}

// StoredWork is a work together with what its source remembers about it.
type StoredWork struct {
	// Work is the work.
	Work *workv1.ManifestWork
	// FirstGeneration is the generation at which this work was created. Statuses of lower
	// generations belong to an earlier, deleted work with the same UID. It is 0 if UIDs are never
	// reused.
	FirstGeneration wire.Generation
	// Relabeled: labels or annotations may have changed since this generation was made, so that an agent that has reported it
	// may have the former ones.
	Relabeled bool
	// Paused: no spec of the work is published until [Engine.WorkChanged] is called for it, also not as the
	// answer to a resync request. Its deletion is.
	Paused bool
	// Sequences are those of the stored statuses, the zero value if the source does not remember
	// them.
	Sequences Sequences
}
