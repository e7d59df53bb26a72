package conditionrules

import (
	"slices"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Completion tells what of a work is complete, and so is not applied any more.
type Completion struct {
	// Manifests are those that have a rule for completion, and are complete.
	Manifests []bool
	// Work is true if every manifest with such a rule is complete, and there is one.
	Work bool
}

// Completed returns the completion of the manifests of a work. complete tells of a manifest with a rule, by its index.
func Completed(manifests []strategy.Manifest, complete func(int) bool) Completion {
	c := Completion{Manifests: make([]bool, len(manifests))}
	ruled, incomplete := false, false
	for i := range manifests {
		// A rule may set no condition, as a well-known rule for another kind does.
		if m := &manifests[i]; slices.Contains(ConditionTypes(m.ConditionRules, m.Kind()), workv1.ManifestComplete) {
			c.Manifests[i] = complete(i)
			ruled, incomplete = true, incomplete || !c.Manifests[i]
		}
	}
	c.Work = ruled && !incomplete
	return c
}

// Of reports whether a manifest is not applied any more, by its index.
func (c Completion) Of(i int) bool { return c.Work || c.Manifests[i] }
