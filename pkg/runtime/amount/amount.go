// Package amount reads what the API and flags have as a number of something, or as a percentage of all.
package amount

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Amount is a number of clusters, or a percentage of a number of clusters.
type Amount struct {
	value   int
	percent bool
}

// Of parses a number, as such or as a text, or a percentage up to 100%. The error follows the name of what has the value.
func Of(from intstr.IntOrString) (Amount, error) {
	digits, percent := strings.CutSuffix(from.String(), "%")
	value, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || percent && value > 100 {
		return Amount{}, fmt.Errorf("is %q: must be a number of clusters, or a percentage from 0%% to 100%%", from.String())
	}
	return Amount{value: int(value), percent: percent}, nil
}

// Resolve returns the amount as a number of clusters. A percentage of total is rounded up.
func (a Amount) Resolve(total int) int {
	if a.percent {
		return (a.value*total + 99) / 100
	}
	return a.value
}
