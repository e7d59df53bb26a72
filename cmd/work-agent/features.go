package main

import (
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// Feature gates, with OCM's names.
const (
	rawFeedback    featuregate.Feature = "RawFeedbackJsonString"
	executorCaches featuregate.Feature = "ExecutorValidatingCaches"
)

// features is the flag of the feature gates.
type features interface {
	pflag.Value
	Enabled(featuregate.Feature) bool
}

func newFeatures() features {
	gates := featuregate.NewFeatureGate()
	err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		rawFeedback:    {PreRelease: featuregate.Alpha},
		executorCaches: {PreRelease: featuregate.Alpha},
	})
	if err != nil {
		panic(err) // two gates have one name
	}
	return gates
}
