package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// everyCluster is the number of clusters that a Placement without a number wants.
const everyCluster = -1

// forever is a time, in seconds, that is not waited for.
const forever = 1 << 40

// rules are the spec of a Placement, parsed. They are never changed.
type rules struct {
	wanted      int        // how many clusters, at most, or everyCluster
	predicates  []selector // a cluster meets one of them; none: every cluster does
	tolerations []clusterv1beta1.Toleration
	groups      []groupRule
	perGroup    size
}

// groupRule is one of the groups that a Placement names.
type groupRule struct {
	name     string
	selector selector
}

// newRules parses the spec of p. Its error names every fault.
func newRules(p *clusterv1beta1.Placement) (*rules, error) {
	r := &rules{wanted: everyCluster, tolerations: p.Spec.Tolerations}
	var faults []error
	if len(p.Name) > validation.LabelValueMaxLength {
		faults = append(faults, fmt.Errorf("metadata.name: it has %d characters, but labels of PlacementDecisions bear it, "+
			"which take %d: choose a shorter name", len(p.Name), validation.LabelValueMaxLength))
	}
	if len(p.Spec.ClusterSets) > 0 {
		faults = append(faults, fmt.Errorf("spec.clusterSets: cluster sets are not served by this hub: "+
			"select the label %s in spec.predicates instead", clusterv1.ClusterSetLabelKey))
	}
	if n := p.Spec.NumberOfClusters; n != nil {
		r.wanted = max(0, int(*n))
	}
	for i, predicate := range p.Spec.Predicates {
		s, err := newSelector(predicate.RequiredClusterSelector)
		if err != nil {
			faults = append(faults, fmt.Errorf("spec.predicates[%d].requiredClusterSelector.%w", i, err))
		}
		r.predicates = append(r.predicates, s)
	}
	strategy := p.Spec.DecisionStrategy.GroupStrategy
	for i, g := range strategy.DecisionGroups {
		s, err := newSelector(g.ClusterSelector)
		if err != nil {
			faults = append(faults, fmt.Errorf("spec.decisionStrategy.groupStrategy.decisionGroups[%d].groupClusterSelector.%w", i, err))
		}
		r.groups = append(r.groups, groupRule{name: g.GroupName, selector: s})
	}
	var err error
	if r.perGroup, err = newSize(strategy.ClustersPerDecisionGroup); err != nil {
		faults = append(faults, fmt.Errorf("spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup: %w", err))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return r, nil
}

// selector selects clusters by labels and by claims.
type selector struct {
	labels labels.Selector
	claims []requirement
}

func newSelector(s clusterv1beta1.ClusterSelector) (selector, error) {
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
	return parsed, nil
}

func (s selector) matches(c *cluster) bool {
	if !s.labels.Matches(labels.Set(c.labels)) {
		return false
	}
	for _, claim := range s.claims {
		if !claim.matches(c.claims) {
			return false
		}
	}
	return true
}

// requirement is a demand on the value of one claim. It is not a
// labels.Requirement, since claims have values that no label can have.
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
		return requirement{}, fmt.Errorf("%q is no operator: want In, NotIn, Exists or DoesNotExist", r.Operator)
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
	default: // DoesNotExist: newRequirement lets no other through
		return !exists
	}
}

// size is how many clusters a group has, at most: a number, or a percentage of
// all chosen ones. The zero value is 100%.
type size struct {
	number, percent int
}

func newSize(v intstr.IntOrString) (size, error) {
	var s size
	switch text, percent := strings.CutSuffix(v.StrVal, "%"); {
	case v.Type == intstr.Int:
		s.number = int(v.IntVal)
	case v.StrVal == "":
	default:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || percent && n > 100 {
			return size{}, fmt.Errorf("%.20q is neither a number of clusters nor a percentage up to 100%%", v.StrVal)
		}
		if percent {
			s.percent = int(n)
		} else {
			s.number = int(n)
		}
	}
	if s.number < 0 || s.percent < 0 {
		return size{}, fmt.Errorf("%s is negative", v.String())
	}
	return s, nil
}

// of gives the size of groups when so many clusters are chosen; at least 1.
func (s size) of(chosen int) int {
	switch {
	case s.number > 0:
		return s.number
	case s.percent > 0:
		return max(1, (chosen*s.percent+99)/100)
	default:
		return max(1, chosen)
	}
}

// fit says whether a placement may choose a cluster, or why not.
type fit uint8

const (
	closed     fit = iota // the hub does not accept it, or it is being deleted
	unselected            // it meets no predicate
	tainted               // it has a NoSelect taint that is not tolerated
	keepable              // it stays chosen, but is not chosen anew: NoSelectIfNew
	eligible
)

// verdict is how a cluster measures up to rules. Equal verdicts have equal
// consequences.
type verdict struct {
	fit   fit
	avoid bool  // chosen anew only when there are no others: PreferNoSelect
	until int64 // when its fit ends, by itself, in Unix seconds; 0: never
	group int   // index of the first groupRule that selects it; their number: none does
}

// judge measures c at a moment.
func (r *rules) judge(c *cluster, now time.Time) verdict {
	if !c.open {
		return verdict{fit: closed}
	}
	matches := func(s selector) bool { return s.matches(c) }
	if len(r.predicates) > 0 && !slices.ContainsFunc(r.predicates, matches) {
		return verdict{fit: unselected}
	}
	v := verdict{fit: eligible}
	for _, t := range c.taints {
		until := r.toleratedUntil(t)
		tolerated := until > now.Unix()
		switch {
		case t.effect == clusterv1.TaintEffectNoSelect && !tolerated:
			return verdict{fit: tainted}
		case t.effect == clusterv1.TaintEffectNoSelect && until != math.MaxInt64 && (v.until == 0 || until < v.until):
			v.until = until
		case t.effect == clusterv1.TaintEffectNoSelectIfNew && !tolerated:
			v.fit = keepable
		case t.effect == clusterv1.TaintEffectPreferNoSelect && !tolerated:
			v.avoid = true
		}
	}
	v.group = slices.IndexFunc(r.groups, func(g groupRule) bool { return g.selector.matches(c) })
	if v.group < 0 {
		v.group = len(r.groups)
	}
	return v
}

// toleratedUntil gives the Unix second from which on t is not tolerated any
// more: math.MaxInt64 for never.
func (r *rules) toleratedUntil(t taint) int64 {
	until := int64(math.MinInt64)
	for i := range r.tolerations {
		tolerance := &r.tolerations[i]
		if !tolerates(tolerance, t) {
			continue
		}
		if tolerance.TolerationSeconds == nil || *tolerance.TolerationSeconds > forever {
			return math.MaxInt64
		}
		until = max(until, t.since.Unix()+max(0, *tolerance.TolerationSeconds))
	}
	return until
}

// tolerates reports whether the toleration is about t.
func tolerates(toleration *clusterv1beta1.Toleration, t taint) bool {
	exists := toleration.Operator == clusterv1beta1.TolerationOpExists
	switch {
	case toleration.Effect != "" && toleration.Effect != t.effect:
		return false
	case toleration.Key == "":
		return exists
	case toleration.Key != t.key:
		return false
	default:
		return exists || (toleration.Operator == "" || toleration.Operator == clusterv1beta1.TolerationOpEqual) && toleration.Value == t.value
	}
}
