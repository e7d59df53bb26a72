package placement

import (
	"math"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// toleratedUntil returns the Unix time at which the toleration of t expires; math.MaxInt64 if it
// does not expire.
func (r *rules) toleratedUntil(t taint) int64 {
	until := int64(math.MinInt64)
	for i := range r.tolerations {
		toleration := &r.tolerations[i]
		if !tolerates(toleration, t) {
			continue
		}
		if toleration.TolerationSeconds == nil || *toleration.TolerationSeconds > maxTolerationSeconds {
			return math.MaxInt64
		}
		until = max(until, r.clock.Adjusted(t.since).Unix()+max(0, *toleration.TolerationSeconds))
	}
	return until
}

// tolerates reports whether the toleration matches t.
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
