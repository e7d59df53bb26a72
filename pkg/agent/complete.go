package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// completion says what of a work is finished and not touched any more.
type completion struct {
	// manifests says it of each manifest.
	manifests []bool
	// work says it of all of it: every manifest with a rule for completion is
	// complete, and there is one.
	work bool
}

// completed decides completion by what the rules for condition Complete say of
// the objects that are seen. One that is not seen counts as it did before: a
// finished Job that was cleaned up stays finished. A manifest whose rule has gone
// is not complete any more, whatever it was.
func completed(manifests []strategy.Manifest, sights []sight, was func(workv1.ManifestResourceMeta) bool) completion {
	c := completion{manifests: make([]bool, len(manifests))}
	ruled, open := false, false
	for i := range manifests {
		m := &manifests[i]
		// A rule may give no condition, as a well-known one for another kind does.
		if !slices.Contains(ruleTypes(m), workv1.ManifestComplete) {
			continue
		}
		ruled = true
		if sights[i].live.State != object.Present {
			c.manifests[i] = was(m.Meta)
		} else {
			c.manifests[i] = meta.IsStatusConditionTrue(sights[i].conditions, workv1.ManifestComplete)
		}
		open = open || !c.manifests[i]
	}
	c.work = ruled && !open
	return c
}
