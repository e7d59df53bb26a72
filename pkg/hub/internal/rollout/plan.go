package rollout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// OtherClusters is the name in messages of the stage of the clusters that no stage of a plan selects.
const OtherClusters = "other clusters"

// Plan is a valid, parsed RolloutPlan. It is immutable and safe for concurrent use.
type Plan struct {
	stages  []stage // the last one has the clusters that no other selects
	windows []window
	ahead   time.Duration // before its window a cluster may receive what it applies then
	freezes []freeze
	closed  string // why nothing starts; empty: it is a plan
}

// stage is a part of the clusters.
type stage struct {
	name     string
	selector labels.Selector
	apart    string
	soak     time.Duration
	approval bool
}

// freeze is a time in which nothing starts.
type freeze struct {
	from, to time.Time
	reason   string
}

// ParsePlan parses and validates a plan but the expressions of its tests. Its error joins one error for each fault.
func ParsePlan(from *workwirev1alpha1.RolloutPlanSpec) (*Plan, error) {
	p := &Plan{ahead: from.StageAhead.Duration}
	var errs []error
	switch {
	case p.ahead < 0 || p.ahead > maxWindow:
		errs = append(errs, fmt.Errorf("stageAhead is %s: must not be negative, and at most %s", p.ahead, maxWindow))
	case p.ahead > 0 && len(from.Windows) == 0:
		errs = append(errs, errors.New("stageAhead has no effect without windows: give the plan windows, or remove it"))
	}
	for i, s := range from.Stages {
		parsed, err := parseStage(s)
		if slices.ContainsFunc(p.stages, func(other stage) bool { return other.name == s.Name }) {
			err = errors.Join(err, errors.New("another stage has the same name"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("stages[%d] %s: %w", i, s.Name, err))
		}
		p.stages = append(p.stages, parsed)
	}
	p.stages = append(p.stages, stage{name: OtherClusters, selector: labels.Everything()})
	for i, w := range from.Windows {
		parsed, err := parseWindow(w)
		if err != nil {
			errs = append(errs, fmt.Errorf("windows[%d]: %w", i, err))
		}
		p.windows = append(p.windows, parsed)
	}
	for i, f := range from.Freezes {
		if !f.From.Before(&f.To) {
			errs = append(errs, fmt.Errorf("freezes[%d]: to must be after from", i))
		}
		p.freezes = append(p.freezes, freeze{from: f.From.Time, to: f.To.Time, reason: f.Reason})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

func parseStage(from workwirev1alpha1.RolloutStage) (stage, error) {
	s := stage{name: from.Name, selector: labels.Everything(), apart: from.Apart, soak: from.Soak.Duration, approval: from.Approval == workwirev1alpha1.ApprovalRequired}
	var errName, errSelector, errSoak, errApproval error
	if s.name == "" || s.name == workwirev1alpha1.PreviewStage {
		errName = fmt.Errorf("name is %q: must not be empty, and not %s", s.name, workwirev1alpha1.PreviewStage)
	}
	if from.ClusterSelector != nil {
		s.selector, errSelector = metav1.LabelSelectorAsSelector(from.ClusterSelector)
	}
	if s.soak < 0 {
		errSoak = fmt.Errorf("soak is %s: must not be negative", s.soak)
	}
	if from.Approval != "" && !s.approval {
		errApproval = fmt.Errorf("approval is %q: must be %s or absent", from.Approval, workwirev1alpha1.ApprovalRequired)
	}
	return s, errors.Join(errName, errSelector, errSoak, errApproval)
}

// Closed returns a plan that starts nothing, for this reason: the plan of the set does not exist, or is invalid.
func Closed(reason string) *Plan {
	return &Plan{stages: []stage{{name: OtherClusters, selector: labels.Everything()}}, closed: reason}
}

// WhyClosed returns why the plan starts nothing; empty if it is a plan.
func (p *Plan) WhyClosed() string { return p.closed }

// StageOf returns the index of the stage of a cluster with these labels. The clusters that no stage selects are in one
// after the last.
func (p *Plan) StageOf(cluster map[string]string) int {
	return slices.IndexFunc(p.stages, func(s stage) bool { return s.selector.Matches(labels.Set(cluster)) })
}

// frozen returns the freeze at a time; nil if there is none. Of several it is the one that ends last.
func (p *Plan) frozen(now time.Time) *freeze {
	var found *freeze
	for i, f := range p.freezes {
		if !now.Before(f.from) && now.Before(f.to) && (found == nil || f.to.After(found.to)) {
			found = &p.freezes[i]
		}
	}
	return found
}

// staging returns the window that opens next for a cluster, if the cluster may have now what it applies then: no freeze is on the way,
// and none begins within the window. Otherwise it returns when to look again.
func (p *Plan) staging(next opening, site Site, now time.Time) (w Window, ok bool, again time.Time) {
	if p.ahead == 0 || next.change.IsZero() || site.Claim == nil || site.Claim(clusterv1.ClaimApplyAt) != clusterv1.ClaimApplyAtObeyed {
		return w, false, next.change
	}
	if at := next.change.Add(-p.ahead); at.After(now) {
		return w, false, at
	}
	w = Window{Start: next.change, End: next.end}
	for _, f := range p.freezes {
		switch {
		case !f.to.After(now) || !f.from.Before(w.End):
		case f.from.After(w.Start):
			w.End = f.from
		default:
			return w, false, Earlier(next.change, f.to)
		}
	}
	return w, true, next.change
}

// nextFreeze returns when the next freeze begins; zero if none does.
func (p *Plan) nextFreeze(now time.Time) (at time.Time) {
	for _, f := range p.freezes {
		if f.from.After(now) {
			at = Earlier(at, f.from)
		}
	}
	return at
}
