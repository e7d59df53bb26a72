package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/runtime/amount"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// everyCluster is rules.wanted of a Placement without numberOfClusters.
const everyCluster = -1

// maxTolerationSeconds is the longest toleration that expires.
const maxTolerationSeconds = 1 << 40

// rules is the parsed spec of a Placement. It is immutable.
type rules struct {
	bound       clustersets.Reach // the sets that are bound to the namespace
	reach       clustersets.Reach // those of them to choose from
	wanted      int               // the maximum number of clusters, or everyCluster
	predicates  []selector        // a cluster must match one of them, if there are any
	priorities  priorities
	constraints []constraint
	tolerations []clusterv1beta1.Toleration
	groups      []groupRule
	perGroup    amount.Amount    // 0: all chosen clusters
	expressions []*celExpression // of all selectors
	clock       *walltime.Clock  // of the times of taints; may be nil
}

// groupRule is a named group of a Placement.
type groupRule struct {
	name     string
	selector selector
}

// newRules parses the spec of p, in a namespace that these sets are bound to. compile returns compiled
// expressions. Its error joins one error per invalid field.
func newRules(p *clusterv1beta1.Placement, bound clustersets.Reach, compile func(string) (*celExpression, error)) (*rules, error) {
	r := &rules{bound: bound, reach: bound.Only(p.Spec.ClusterSets), wanted: everyCluster, tolerations: p.Spec.Tolerations}
	var errs []error
	if len(p.Name) > validation.LabelValueMaxLength {
		errs = append(errs, fmt.Errorf("metadata.name: has %d characters, but is also a label value of PlacementDecisions, "+
			"which have at most %d: choose a shorter name", len(p.Name), validation.LabelValueMaxLength))
	}
	if n := p.Spec.NumberOfClusters; n != nil {
		r.wanted = max(0, int(*n))
	}
	newSelector := func(s clusterv1beta1.ClusterSelector) (selector, error) {
		parsed, err := newSelector(s, compile)
		r.expressions = append(r.expressions, parsed.expressions...)
		return parsed, err
	}
	if err := checkExpressions(p); err != nil {
		return nil, err
	}
	for i, predicate := range p.Spec.Predicates {
		s, err := newSelector(predicate.RequiredClusterSelector)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.predicates[%d].requiredClusterSelector.%w", i, err))
		}
		r.predicates = append(r.predicates, s)
	}
	strategy := p.Spec.DecisionStrategy.GroupStrategy
	for i, g := range strategy.DecisionGroups {
		s, err := newSelector(g.ClusterSelector)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.decisionStrategy.groupStrategy.decisionGroups[%d].groupClusterSelector.%w", i, err))
		}
		r.groups = append(r.groups, groupRule{name: g.GroupName, selector: s})
	}
	var err error
	if r.priorities, err = newPriorities(p.Spec.PrioritizerPolicy); err != nil {
		errs = append(errs, fmt.Errorf("spec.prioritizerPolicy.%w", err))
	}
	if r.constraints, err = newConstraints(p.Spec.SpreadPolicy); err != nil {
		errs = append(errs, fmt.Errorf("spec.spreadPolicy.spreadConstraints: %w", err))
	}
	if size := strategy.ClustersPerDecisionGroup; size != intstr.FromString("") {
		if r.perGroup, err = amount.Of(size); err != nil {
			errs = append(errs, fmt.Errorf("spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// checkExpressions returns an error if p has too many expressions, or too long ones.
func checkExpressions(p *clusterv1beta1.Placement) error {
	count, length := 0, 0
	add := func(s clusterv1beta1.ClusterSelector) {
		for _, text := range s.CelSelector.CelExpressions {
			count, length = count+1, length+len(text)
		}
	}
	for _, predicate := range p.Spec.Predicates {
		add(predicate.RequiredClusterSelector)
	}
	for _, g := range p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups {
		add(g.ClusterSelector)
	}
	if count > maxExpressions || length > maxExpressionsLength {
		return fmt.Errorf("there are %d celExpressions with %d characters, at most %d with %d are allowed", count, length, maxExpressions, maxExpressionsLength)
	}
	return nil
}

// selector selects clusters by labels, claims and expressions.
type selector struct {
	labels      labels.Selector
	claims      []requirement
	expressions []*celExpression
}

func newSelector(s clusterv1beta1.ClusterSelector, compile func(string) (*celExpression, error)) (selector, error) {
	byLabel, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
	if err != nil {
		return selector{}, fmt.Errorf("labelSelector: %w", err)
	}
	parsed := selector{labels: byLabel}
	for i, e := range s.ClaimSelector.MatchExpressions {
		claim, err := newRequirement(e)
		if err != nil {
			return selector{}, fmt.Errorf("claimSelector.matchExpressions[%d]: %w", i, err)
		}
		parsed.claims = append(parsed.claims, claim)
	}
	for i, text := range s.CelSelector.CelExpressions {
		e, err := compile(text)
		if err != nil {
			return selector{}, fmt.Errorf("celSelector.celExpressions[%d]: %w", i, err)
		}
		if e != nil {
			parsed.expressions = append(parsed.expressions, e)
		}
	}
	return parsed, nil
}

// matches reports whether s selects c, and notes in v why an expression failed, and when that changes.
func (s selector) matches(c *cluster, now int64, v *verdict) bool {
	if !s.labels.Matches(labels.Set(c.labels)) ||
		slices.ContainsFunc(s.claims, func(claim requirement) bool { return !claim.matches(c.claims) }) {
		return false
	}
	for _, e := range s.expressions {
		result := e.evaluate(c, now)
		v.changes = earliest(v.changes, result.until)
		if result.fault != "" && v.fault == "" {
			v.fault = result.fault
		}
		if !result.matches {
			return false
		}
	}
	return true
}

// requirement is a condition on one claim. A labels.Requirement does not fit, since its values must
// be valid label values.
type requirement metav1.LabelSelectorRequirement

func newRequirement(r metav1.LabelSelectorRequirement) (requirement, error) {
	switch r.Operator {
	case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
		if len(r.Values) == 0 {
			return requirement{}, fmt.Errorf("operator %s needs values", r.Operator)
		}
	case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return requirement{}, fmt.Errorf("operator %s takes no values", r.Operator)
		}
	default:
		return requirement{}, fmt.Errorf("unknown operator %q: must be In, NotIn, Exists or DoesNotExist", r.Operator)
	}
	return requirement(r), nil
}

func (r requirement) matches(claims map[string]string) bool {
	value, exists := claims[r.Key]
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return exists && slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpNotIn:
		return !exists || !slices.Contains(r.Values, value)
	case metav1.LabelSelectorOpExists:
		return exists
	default: // DoesNotExist, see newRequirement
		return !exists
	}
}

// groupSize returns the maximum number of clusters of a group for a number of chosen clusters; at least 1.
func (r *rules) groupSize(chosen int) int { return cmp.Or(r.perGroup.Resolve(chosen), chosen, 1) }

// fit is whether a placement can choose a cluster.
type fit uint8

const (
	outside     fit = iota // in none of the sets to choose from
	notAccepted            // not accepted by the hub, or being deleted
	notSelected            // matches no predicate
	tainted                // has a NoSelect taint that is not tolerated
	keepable               // stays chosen, but is not newly chosen: NoSelectIfNew
	eligible
)

// verdict is the result of evaluating a cluster against rules. Clusters with equal verdicts are
// treated equally.
type verdict struct {
	fit     fit
	avoid   bool  // newly chosen only if there are no others: PreferNoSelect
	until   int64 // Unix seconds when a toleration expires; 0 means never
	group   int   // index of the first groupRule that selects it; len(groups) if none does
	rating  rating
	changes int64  // Unix seconds when scores that were read expire; 0 means never
	fault   string // why an expression could not be evaluated; empty if all could
}

// evaluate returns the verdict on c at the time now. A cluster that does not exist, nil, is in no
// set; if all clusters are in reach, it is like one that is not accepted.
func (r *rules) evaluate(c *cluster, now time.Time) verdict {
	switch {
	case c == nil && r.reach.HasAll():
		return verdict{fit: notAccepted}
	case c == nil:
		return verdict{fit: outside}
	}
	if !r.reach.Has(c.labels) {
		return verdict{fit: outside}
	}
	if !c.accepted {
		return verdict{fit: notAccepted}
	}
	v := verdict{fit: eligible}
	matches := func(s selector) bool { return s.matches(c, now.Unix(), &v) }
	if len(r.predicates) > 0 && !slices.ContainsFunc(r.predicates, matches) {
		return verdict{fit: notSelected, changes: v.changes, fault: v.fault}
	}
	for _, t := range c.taints {
		until := r.toleratedUntil(t)
		tolerated := until > now.Unix()
		switch {
		case t.effect == clusterv1.TaintEffectNoSelect && !tolerated:
			return verdict{fit: tainted, changes: v.changes}
		case t.effect == clusterv1.TaintEffectNoSelect && until != math.MaxInt64 && (v.until == 0 || until < v.until):
			v.until = until
		case t.effect == clusterv1.TaintEffectNoSelectIfNew && !tolerated:
			v.fit = keepable
		case t.effect == clusterv1.TaintEffectPreferNoSelect && !tolerated:
			v.avoid = true
		}
	}
	v.group = slices.IndexFunc(r.groups, func(g groupRule) bool { return matches(g.selector) })
	if v.group < 0 {
		v.group = len(r.groups)
	}
	rating, changes := r.priorities.rate(c, now.Unix())
	v.rating, v.changes = rating, earliest(v.changes, changes)
	return v
}

// distinguishes reports whether a and b, of which one may be nil, are treated differently.
func (r *rules) distinguishes(a, b *cluster, now time.Time) bool {
	return r.evaluate(a, now) != r.evaluate(b, now) || a != nil && b != nil && domainsOf(r.constraints, a) != domainsOf(r.constraints, b)
}

// prepare evaluates the expressions on all clusters, which keep the results. It returns false if that takes longer
// than until end.
func (r *rules) prepare(clusters []*cluster, now, end time.Time) bool {
	if len(r.expressions) == 0 {
		return true
	}
	for _, c := range clusters {
		if time.Now().After(end) {
			return false
		}
		r.evaluate(c, now)
	}
	return true
}

// forget drops what is kept of a cluster that is gone.
func (r *rules) forget(cluster string) {
	for _, e := range r.expressions {
		e.forget(cluster)
	}
}

// SelectsWithout returns a function that reports whether p, in a namespace that these sets are bound
// to, could keep a cluster selected that has no taint with this key. It always does if the spec of p
// is invalid: the decisions stay unchanged then. Decisions that are older than cluster sets do not
// depend on what is bound. Expressions are taken to be true: the scores of an absent cluster are not known.
func SelectsWithout(p *clusterv1beta1.Placement, bound clustersets.Reach, key string, now time.Time) func(*clusterv1.ManagedCluster) bool {
	r, err := newRules(p, bound, func(string) (*celExpression, error) { return nil, nil })
	if err == nil && !decidedFromSets(p) {
		r.reach = clustersets.Everything()
	}
	return func(c *clusterv1.ManagedCluster) bool {
		if err != nil {
			return true
		}
		without := newCluster(c, nil, nil, now)
		without.taints = slices.DeleteFunc(without.taints, func(t taint) bool { return t.key == key })
		return r.evaluate(without, now).fit >= keepable
	}
}
