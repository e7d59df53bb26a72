package delivery

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Publication is one attempt to publish a spec or a deletion.
type Publication struct {
	// UID and Cluster identify the work.
	UID     types.UID
	Cluster wire.ClusterName
	// Generation that is published.
	Generation wire.Generation
	// Began is when the attempt began.
	Began time.Time
	// Ended is when it ended: with the broker's acknowledgement, if Err is nil. Zero: it has begun.
	Ended time.Time
	// NobodyListens reports whether the broker said that no client subscribes to the topic.
	NobodyListens bool
	// Refused is [ReasonTooLarge], [ReasonNotAuthorized] or [ReasonInvalidClusterName] if a retry
	// cannot succeed.
	Refused string
	// Err is why the attempt failed.
	Err error
}

// reported returns status without what its source added to what the agent reported. It shares
// memory with status.
func reported(status *workv1.ManifestWorkStatus) *workv1.ManifestWorkStatus {
	isOwn := func(c metav1.Condition) bool { return c.Type == workv1.WorkDelivered }
	if !slices.ContainsFunc(status.Conditions, isOwn) {
		return status
	}
	without := *status
	without.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), isOwn)
	return &without
}
