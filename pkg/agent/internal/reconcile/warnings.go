package reconcile

import (
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
)

// warned is a manifest with warnings: its object and its hash.
type warned struct {
	ref  object.Ref
	hash string
}

// warnings returns the warnings about manifest i, and whether they are known: whether it was
// written since the agent started.
func (rec *reconciliation) warnings(i int) (texts []string, known bool) {
	texts = rec.history().warnings[rec.warned(i)]
	return texts, len(texts) > 0 || rec.outcomes[i].Validated
}

func (rec *reconciliation) warned(i int) warned {
	return warned{ref: rec.manifests[i].Ref, hash: rec.manifests[i].Hash}
}

// rememberWarnings keeps the warnings about the manifests: those of their last write.
func (rec *reconciliation) rememberWarnings() {
	h := rec.history()
	var next map[warned][]string
	for i := range rec.outcomes {
		outcome, key := &rec.outcomes[i], rec.warned(i)
		texts := h.warnings[key]
		if outcome.Validated {
			texts = append(strategy.DuplicateFields(&rec.work.Spec.Workload.Manifests[i]), outcome.Warnings...)
		}
		if len(texts) == 0 {
			continue
		}
		if next == nil {
			next = map[warned][]string{}
		}
		next[key] = texts
	}
	h.warnings = next
}
