package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// verdict is what happens to a message; it is a metric label.
type verdict string

const (
	accepted verdict = "accepted"
	// notServed: of a cluster that another program under this source id serves.
	notServed   verdict = "not_served"
	undecodable verdict = "undecodable"
	// foreign: of another data type, or addressed to another source.
	foreign verdict = "foreign"
	// wrongCluster: the sender's topic is not that of the work's cluster.
	wrongCluster verdict = "wrong_cluster"
	unknownWork  verdict = "unknown_work"
	// formerWork: about an earlier work with the same UID.
	formerWork verdict = "former_work"
	// ahead: about a generation that the source does not have yet.
	ahead verdict = "ahead"
	// farAhead: its sequence id is later than any clock.
	farAhead verdict = "far_ahead"
	// outOfOrder: a duplicate, or a later status was received before.
	outOfOrder verdict = "out_of_order"
	// tooMuch: the statuses of the cluster that wait to be stored take too much memory; it is asked again.
	tooMuch verdict = "too_much"
	// notDeleting: Deleted=True of a work that is not being deleted.
	notDeleting verdict = "not_deleting"
	// unknownBase: a delta of a status that the source does not have; it asks for the whole.
	unknownBase verdict = "unknown_base"
	// overQuota: its cluster has used up its quota, and is asked for it again.
	overQuota verdict = "over_quota"
	// untrusted: it is not signed as it must be, or a later one was received before.
	untrusted verdict = "untrusted"
)

// sender identifies who may publish to the topic of a message.
type sender struct {
	source  wire.SourceID // empty on a broadcast topic
	cluster wire.ClusterName
}

// check decides whether source accepts a message from s that names this source (empty for all) and
// this cluster.
func (s sender) check(source, named wire.SourceID, cluster wire.ClusterName) verdict {
	switch {
	case s.source != "" && s.source != source, named != "" && named != source:
		return foreign
	case s.cluster == "" || s.cluster != cluster:
		return wrongCluster
	default:
		return accepted
	}
}

// checkStatus decides whether a status is accepted (docs/protocol.md, Ordering). stored is the
// work, if has; old reports whether s is older than a status that was accepted.
func checkStatus(s *wire.Status, from sender, source wire.SourceID, stored StoredWork, has, old bool) verdict {
	if v := from.check(source, s.Source, s.Cluster); v != accepted {
		return v
	}
	switch {
	case !s.Sequence.Credible():
		return farAhead
	case !has:
		return unknownWork
	case wire.ClusterName(stored.Work.Namespace) != s.Cluster:
		return wrongCluster
	case s.Generation != 0 && s.Generation < stored.FirstGeneration:
		return formerWork
	case s.Generation > wire.Generation(stored.Work.Generation):
		return ahead
	case old:
		return outOfOrder
	case isTrue(s, workv1.WorkDeleted) && stored.Work.DeletionTimestamp == nil:
		return notDeleting
	default:
		return accepted
	}
}

func isTrue(s *wire.Status, condition string) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, condition)
}
