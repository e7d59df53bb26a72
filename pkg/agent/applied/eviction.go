package applied

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// NeverEvict is the grace period from which on no record is evicted.
const NeverEvict = 100 * 365 * 24 * time.Hour

// Eviction is what to do about a record that may have no work any more.
type Eviction int

const (
	// None: nothing.
	None Eviction = iota
	// Mark: write down that it is unmanaged from now on, with
	// [Client.SetEviction].
	Mark
	// Clear: take that back.
	Clear
	// Evict: delete the record, and its objects with it.
	Evict
	// Wait: it is marked, and its time has not come.
	Wait
)

// String gives the name of e.
func (e Eviction) String() string {
	switch e {
	case Mark:
		return "Mark"
	case Clear:
		return "Clear"
	case Evict:
		return "Evict"
	case Wait:
		return "Wait"
	default:
		return "None"
	}
}

// EvictionRule is what [DecideEviction] goes by.
type EvictionRule struct {
	// AgentID is that of this agent. Records of others are left alone.
	AgentID string
	// Managed reports that a work stands behind the record: one of its name is held,
	// and the record is named after the hub that it is of.
	Managed bool
	// Grace is how long a record stays without a work. From [NeverEvict] on it stays
	// for ever; 0 or less evicts it as soon as it is marked.
	Grace time.Duration
	// Answered reports that the sources have said which works there are. Until then
	// a work that is not held is no proof, and nothing is marked or evicted.
	Answered bool
	// Now is the time by this agent's clock.
	Now time.Time
}

// DecideEviction says what to do about a record, and, with Mark and Wait, after
// how long it is due to be evicted. The API keeps times in whole seconds, so that
// a grace period may begin up to a second early.
func DecideEviction(record *workv1.AppliedManifestWork, rule EvictionRule) (Eviction, time.Duration) {
	if record.Spec.AgentID != rule.AgentID || record.DeletionTimestamp != nil {
		return None, 0
	}
	start := record.Status.EvictionStartTime
	switch {
	case rule.Managed || rule.Grace >= NeverEvict:
		if start != nil {
			return Clear, 0
		}
		return None, 0
	case !rule.Answered:
		return None, 0
	case start == nil:
		return Mark, max(rule.Grace, 0)
	}
	if left := start.Add(rule.Grace).Sub(rule.Now); left > 0 {
		return Wait, left
	}
	return Evict, 0
}

// SetEviction writes since when record is unmanaged, or, when start is nil, that
// it is not: one request, or none when it says so already. It fails when record
// is gone or another one has its name, and leaves the rest of its status alone.
func (r *Client) SetEviction(ctx context.Context, record *workv1.AppliedManifestWork, start *metav1.Time) (*workv1.AppliedManifestWork, error) {
	have := record.Status.EvictionStartTime
	switch {
	case start == nil && have == nil:
		return record, nil
	case start == nil:
		return r.patchStatus(ctx, record, operation{Op: "remove", Path: "/status/evictionStartTime"})
	case have != nil && have.Unix() == start.Unix():
		return record, nil
	}
	return r.patchStatus(ctx, record, operation{Op: "add", Path: "/status/evictionStartTime", Value: start})
}
