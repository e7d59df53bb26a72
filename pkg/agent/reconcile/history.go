package reconcile

import (
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
)

// history is what the reconciles of one name leave to the next one. The worker that holds the name
// owns it.
type history struct {
	// spec is the work that was reconciled last, nil after a start.
	spec *inbox.Entry
	// applied maps each object to the work whose spec it was last applied from. Nil means spec, for
	// all of its manifests. See lastApplied.
	applied map[object.Ref]*inbox.Entry
	// errs are the errors of the manifests of spec when they were last applied.
	errs []error
	// gone holds the objects that the AppliedManifestWork names and that do not exist any more.
	gone    map[object.Ref]struct{}
	repairs repairs
}

func (h *history) isZero() bool {
	return h.spec == nil && h.applied == nil && h.errs == nil && h.gone == nil && h.repairs.count == 0 && h.repairs.conflicts == nil
}

// reset forgets everything that is about the manifests of the spec before.
func (h *history) reset() { h.errs, h.gone, h.repairs = nil, nil, repairs{last: h.repairs.last} }

// markGone notes that an object which the AppliedManifestWork names does not exist any more.
func (h *history) markGone(ref object.Ref) {
	if h.gone == nil {
		h.gone = map[object.Ref]struct{}{}
	}
	h.gone[ref] = struct{}{}
}
