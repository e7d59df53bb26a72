package reconcile

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// completion tells what of a work is complete, and so is not applied any more.
type completion struct {
	manifests []bool
	// work is true if every manifest with a rule for completion is complete, and there is one.
	work bool
}

// completed decides completion by the rules for condition Complete. A manifest whose object is not
// observed is as complete as it was before: a finished Job stays complete after it was cleaned up.
// A manifest without such a rule is not complete, whatever it was before.
func completed(manifests []strategy.Manifest, observed []observed, wasComplete func(workv1.ManifestResourceMeta) bool) completion {
	c := completion{manifests: make([]bool, len(manifests))}
	ruled, incomplete := false, false
	for i := range manifests {
		m := &manifests[i]
		// A rule may set no condition, as a well-known rule for another kind does.
		if !slices.Contains(ruleTypes(m), workv1.ManifestComplete) {
			continue
		}
		ruled = true
		if observed[i].live.State != object.Present {
			c.manifests[i] = wasComplete(m.Meta)
		} else {
			c.manifests[i] = meta.IsStatusConditionTrue(observed[i].conditions, workv1.ManifestComplete)
		}
		incomplete = incomplete || !c.manifests[i]
	}
	c.work = ruled && !incomplete
	return c
}
