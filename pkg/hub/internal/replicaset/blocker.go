package replicaset

import (
	"cmp"
	"strings"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	maxBlockers    = 3   // clusters that the message of a rollout explains
	maxBlockerText = 303 // bytes of what an object reports, with the mark of one that is cut
)

// noteBlocker notes what keeps a cluster that has the template from success, for the first clusters.
func (r *placementRollout) noteBlocker(name string, cluster rollout.Cluster, work *workv1.ManifestWork, current bool) {
	if !current || cluster.Away || len(r.blockers) >= maxBlockers || cluster.Status != rollout.Progressing && cluster.Status != rollout.Failed {
		return
	}
	if text := cmp.Or(r.testing[name], blocker(work)); text != "" {
		r.blockers = append(r.blockers, name+": "+text)
	}
}

// blocker returns the object that keeps a work from being ready, and what it reports; empty if the work's
// status names none, or is that of an earlier generation.
func blocker(work *workv1.ManifestWork) string {
	b := workstate.Of(works.UnpackStatus(work), nil).Blocker
	if b == nil || !b.OfManifest {
		return ""
	}
	return b.Object + ": " + condition.Shorten(b.Message, maxBlockerText)
}

// waitingMessage says what rollouts wait for; empty if no cluster says so.
func waitingMessage(rollouts []placementRollout) string {
	var blockers []string
	for _, r := range rollouts {
		blockers = append(blockers, r.blockers...)
	}
	if len(blockers) == 0 {
		return ""
	}
	return "waiting for " + strings.Join(blockers[:min(len(blockers), maxBlockers)], "; ")
}

// joinTexts joins texts that are not empty.
func joinTexts(texts ...string) string {
	var all []string
	for _, text := range texts {
		if text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}
