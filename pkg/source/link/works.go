package link

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Works is where a source keeps its works. Its methods are called from several
// goroutines at the same time. The works that it gives may be shared memory: a
// Link never writes to them.
//
// A work's namespace names its cluster.
type Works interface {
	// Get gives the work with uid, or false when there is none. It does no I/O.
	Get(uid types.UID) (Held, bool)

	// OfCluster gives all works of cluster. It does no I/O.
	OfCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork]

	// Clusters gives every cluster that has works, once.
	Clusters() iter.Seq[wire.ClusterName]

	// Intake takes a status in, which belongs to the callee from then on. All
	// checks that the protocol asks for have been made. There is one call per
	// work at a time, and when statuses come faster than they are taken in only
	// the newest is. A status whose Deleted condition is True is the agent's word
	// that the work's objects are gone. An error makes the Link call again after
	// a pause, so what no repeating can mend must not be one.
	Intake(ctx context.Context, s *wire.Status) error

	// Refused reports that the newest spec of a work can not be published, by
	// the condition to set in its current status. Statuses of older generations
	// carry the condition as well while that lasts. Calls are ordered with those
	// of Intake and repeated like them.
	Refused(ctx context.Context, uid types.UID, c metav1.Condition) error

	// Outdated reports that an agent holds generation held of the work, which is
	// higher than the source's own, and therefore drops what this source sends: a
	// source that counts its own generations goes on from held.
	Outdated(uid types.UID, held wire.Generation)
}

// Held is what a source knows of one of its works.
type Held struct {
	// Work is the work.
	Work *workv1.ManifestWork
	// Since is the first generation of this work when its UID may have belonged
	// to an earlier one, deleted since: statuses of generations before it are the
	// earlier one's. 0 for UIDs that never come back.
	Since wire.Generation
	// Sequence is that of the last status taken in as far as the source remembers
	// it, 0 otherwise.
	Sequence wire.SequenceID
}
