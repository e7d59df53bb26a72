package rollout

import "slices"

// Revisions are the templates that a set goes back from and to, by the numbers of their revisions. 0 means none.
type Revisions struct {
	// Own is the template of the set.
	Own int64
	// Proven is the last one that succeeded everywhere it was.
	Proven int64
	// Served is the one that clusters receive in place of Own.
	Served int64
}

// Current returns the template that clusters receive.
func (r Revisions) Current() int64 {
	if r.Served != 0 {
		return r.Served
	}
	return r.Own
}

// After returns the revisions after the decisions about the clusters of each placement with the current one.
//
// The set goes back if more clusters fail than a strategy tolerates, unless its own template is the proven one: it has
// succeeded before, and others do not mend what makes it fail now. The set goes back once for each template that
// somebody gives it. If the way back fails, the set stays on it, and the template that failed there is proven no more.
// So the hub alone never alternates between two templates.
func (r Revisions) After(decisions []Decision) Revisions {
	failed := slices.ContainsFunc(decisions, func(d Decision) bool { return len(d.Exceeded) > 0 })
	switch {
	case failed && r.Served == 0 && r.Own != r.Proven:
		r.Served = r.Proven
	case failed && r.Served != 0:
		r.Proven = 0
	case !failed && proven(decisions):
		r.Proven = r.Current()
	}
	return r
}

// proven reports whether a template succeeded everywhere. A placement without clusters, or with none but skipped ones, proves nothing and
// disproves nothing, unless there is no template for some of them.
func proven(decisions []Decision) bool {
	return slices.ContainsFunc(decisions, func(d Decision) bool { return d.Proven }) &&
		!slices.ContainsFunc(decisions, func(d Decision) bool { return !d.Proven && len(d.Rollout)+len(d.Waiting)+d.Unrendered > 0 })
}
