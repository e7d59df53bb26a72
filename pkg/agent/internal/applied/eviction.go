package applied

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// NeverEvict is the grace period from which nothing is evicted.
const NeverEvict = 100 * 365 * 24 * time.Hour

// Eviction is an action for an AppliedManifestWork whose work may not exist any more.
type Eviction int

const (
	// None: do nothing.
	None Eviction = iota
	// Mark: set the time from which it is unmanaged, with [Client.SetEviction].
	Mark
	// Clear: remove that time.
	Clear
	// Evict: delete it and its objects.
	Evict
	// Wait: it is marked, and the grace period has not ended.
	Wait
)

// EvictionRule is the input of [DecideEviction].
type EvictionRule struct {
	// AgentID of this agent. Those of other agents are not evicted.
	AgentID string
	// Grace is how long it stays without a work: forever from [NeverEvict] on; with 0 or less it is
	// evicted as soon as it is marked.
	Grace time.Duration
	// Answered reports whether the sources have listed their works. Until then nothing is marked or
	// evicted, because works may be missing only here.
	Answered bool
	// Now is the current time.
	Now time.Time
	// Clock adjusts the time of the mark to steps of the clock; nil: there are none.
	Clock *walltime.Clock
}

// DecideEviction returns what to do with amw, which has no work, and, for Mark and Wait, the time until its eviction.
// The API stores times in whole seconds, so a grace period may begin up to a second early.
func DecideEviction(amw *workv1.AppliedManifestWork, rule EvictionRule) (Eviction, time.Duration) {
	if amw.Spec.AgentID != rule.AgentID || amw.DeletionTimestamp != nil {
		return None, 0
	}
	start := amw.Status.EvictionStartTime
	switch {
	case rule.Grace >= NeverEvict:
		if start != nil {
			return Clear, 0
		}
		return None, 0
	case !rule.Answered:
		return None, 0
	case start == nil, start.Before(&amw.CreationTimestamp) && rule.Now.After(amw.CreationTimestamp.Time):
		return Mark, max(rule.Grace, 0) // a mark from before the creation is that of a clock that was not set
	}
	if left := rule.Clock.Adjusted(start.Time).Add(rule.Grace).Sub(rule.Now); left > 0 {
		return Wait, left
	}
	return Evict, 0
}

// SetEviction sets the time since which amw is unmanaged, or removes it if start is nil, in one
// request or none. It leaves other fields of the status alone. It returns an error if amw does not
// exist any more, has changed, or another AppliedManifestWork has its name.
func (c *Client) SetEviction(ctx context.Context, amw *workv1.AppliedManifestWork, start *metav1.Time) (*workv1.AppliedManifestWork, error) {
	have := amw.Status.EvictionStartTime
	switch {
	case start == nil && have == nil, start != nil && have != nil && have.Unix() == start.Unix():
		return amw, nil
	case start == nil:
		return c.patchStatus(ctx, amw, kube.JSONPatchOperation{Op: "remove", Path: "/status/evictionStartTime"})
	}
	return c.patchStatus(ctx, amw, kube.JSONPatchOperation{Op: "add", Path: "/status/evictionStartTime", Value: start})
}
