package rollout

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/amount"
)

// Strategy is a valid, parsed RolloutStrategy. The zero value is All without a deadline. A Strategy
// is immutable and safe for concurrent use.
type Strategy struct {
	kind        clusterv1alpha1.RolloutType // empty: All
	minSuccess  time.Duration
	deadline    time.Duration // 0: none
	maxFailures amount.Amount
	concurrency amount.Amount // 0: all
	mandatory   []clusterv1alpha1.MandatoryDecisionGroup
}

// Parse parses and validates a strategy. Its error joins one error per invalid field, each with the
// valid values. The schema of the API rejects most invalid strategies earlier.
func Parse(from *clusterv1alpha1.RolloutStrategy) (Strategy, error) {
	if from.RolloutType != "" && from.Type != "" && from.RolloutType != from.Type {
		return Strategy{}, fmt.Errorf("rollout strategy: rolloutType is %s and type is %s: both name the same field, set only one",
			from.RolloutType, from.Type)
	}
	strategy := Strategy{kind: from.Kind()}
	var err error
	switch strategy.kind {
	case clusterv1alpha1.All:
		if from.All != nil {
			err = strategy.parseConfig("all", from.All.RolloutConfig)
		}
	case clusterv1alpha1.Progressive:
		if options := from.Progressive; options != nil {
			var errConcurrency error
			strategy.concurrency, errConcurrency = parseAmount("progressive.maxConcurrency", options.MaxConcurrency)
			strategy.mandatory = options.MandatoryDecisionGroups.DeepCopy().MandatoryDecisionGroups
			err = errors.Join(errConcurrency, strategy.parseConfig("progressive", options.RolloutConfig))
		}
	case clusterv1alpha1.ProgressivePerGroup:
		if options := from.ProgressivePerGroup; options != nil {
			strategy.mandatory = options.MandatoryDecisionGroups.DeepCopy().MandatoryDecisionGroups
			err = strategy.parseConfig("progressivePerGroup", options.RolloutConfig)
		}
	default:
		err = fmt.Errorf("rolloutType is %q: must be All, Progressive or ProgressivePerGroup", strategy.kind)
	}
	if err != nil {
		return Strategy{}, fmt.Errorf("rollout strategy: %w", err)
	}
	return strategy, nil
}

func (s *Strategy) parseConfig(options string, from clusterv1alpha1.RolloutConfig) error {
	var errSuccess, errDeadline, errFailures error
	s.minSuccess = from.MinSuccessTime.Duration
	if s.minSuccess < 0 {
		errSuccess = fmt.Errorf("%s.minSuccessTime is %s: must not be negative", options, s.minSuccess)
	}
	if from.ProgressDeadline != "" && from.ProgressDeadline != clusterv1alpha1.NoDeadline {
		var err error
		s.deadline, err = time.ParseDuration(from.ProgressDeadline)
		if err != nil || s.deadline <= 0 {
			errDeadline = fmt.Errorf("%s.progressDeadline is %q: must be %s or a time of more than 0, such as 10m or 1h30m",
				options, from.ProgressDeadline, clusterv1alpha1.NoDeadline)
		}
	}
	s.maxFailures, errFailures = parseAmount(options+".maxFailures", from.MaxFailures)
	return errors.Join(errSuccess, errDeadline, errFailures)
}

func parseAmount(field string, from intstr.IntOrString) (amount.Amount, error) {
	parsed, err := amount.Of(from)
	if err != nil {
		return parsed, fmt.Errorf("%s %w", field, err)
	}
	return parsed, nil
}
