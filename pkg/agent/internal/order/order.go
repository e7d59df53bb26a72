// Package order decides in which order the manifests of a work are applied: hooks before all others,
// waves from the lowest to the highest, hooks after them; all of them after other works, if the work depends on some. It is pure.
//
//	o := order.Of(items, false)
//	for o.Opens(opened, ready) {
//		opened++
//		... // apply the manifests that o.Waits(i, opened) does not hold back any more
//	}
//
// The manifests of one hook or wave are a stage. Stages open one after the other, and stay open: what was applied for a spec is
// kept as declared whatever becomes of other objects. So the number of open stages is all that has to be remembered.
package order

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Item is the place of a manifest.
type Item struct {
	Hook string // workv1.HookBefore, workv1.HookAfter or empty
	Wave int
}

// phase returns a number that grows from phase to phase.
func (i Item) phase() int {
	switch i.Hook {
	case workv1.HookBefore:
		return 0
	case workv1.HookAfter:
		return 2
	}
	return 1
}

// Compare returns which of two places is applied first, as [cmp.Compare] does.
func Compare(a, b Item) int {
	return cmp.Or(cmp.Compare(a.phase(), b.phase()), cmp.Compare(a.Wave, b.Wave))
}

// Order is the order of the manifests of a spec. The zero Order is that of a spec whose manifests have none.
type Order struct {
	stages []Item // in their order
	items  []Item // of each manifest
	stage  []int  // of each manifest
}

// Of returns the order of the manifests of a work, which may depend on others.
func Of(items []Item, dependent bool) Order {
	stages := slices.Clone(items)
	slices.SortFunc(stages, Compare)
	stages = slices.Compact(stages)
	if len(stages) == 0 || len(stages) == 1 && stages[0].Hook == "" && !dependent {
		return Order{}
	}
	o := Order{stages: stages, items: items, stage: make([]int, len(items))}
	for i, item := range items {
		o.stage[i], _ = slices.BinarySearchFunc(stages, item, Compare)
	}
	return o
}

// IsZero reports whether no manifest waits for another.
func (o *Order) IsZero() bool { return o.stages == nil }

// First is the number of stages that are open at the start, 0 if the work depends on others.
const First = 1

// Finished reports whether all manifests were ready with so many stages open.
func (o *Order) Finished(opened int) bool { return opened > len(o.stages) }

// Opens reports whether the next stage opens, or the order finishes: whether all manifests of the open ones are ready. Before the first
// one, that is for the caller to say.
func (o *Order) Opens(opened int, ready func(int) bool) bool {
	if o.Finished(opened) {
		return false
	}
	for i := range o.items {
		if o.stage[i] < opened && !ready(i) {
			return false
		}
	}
	return true
}

// Waits reports whether manifest i is in a stage that is not open.
func (o *Order) Waits(i, opened int) bool { return !o.IsZero() && o.stage[i] >= opened }

// HasRun reports whether manifest i is a hook that has run: whether it was ready when a later stage opened.
func (o *Order) HasRun(i, opened int) bool {
	return !o.IsZero() && o.items[i].Hook != "" && o.stage[i] < opened-1
}

// maxNamed is the number of manifests that a message names.
const maxNamed = 3

// Wait returns what those wait for whose stage is not open, of which there are some that are. why says of a manifest, with its object, why it is not ready; empty if it is.
func (o *Order) Wait(opened int, why func(int) string) condition.Waiting {
	at := min(opened, len(o.stages)) - 1 // the lowest stage that is not ready is waited for
	var texts []string
	for i, stage := range o.stage {
		if stage >= opened || stage > at && len(texts) > 0 {
			continue
		}
		if text := why(i); text == "" {
			continue
		} else if stage < at {
			at, texts = stage, []string{text}
		} else {
			texts = append(texts, text)
		}
	}
	wait := condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: fmt.Sprintf("Waits for wave %d", o.stages[at].Wave)}
	if o.stages[at].Hook != "" {
		wait = condition.Waiting{Reason: workv1.ReasonWaitsForHook, Message: "Waits for a hook"}
	}
	more := len(texts) - maxNamed
	if more > 0 {
		texts = append(texts[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if len(texts) > 0 {
		wait.Message += ": " + strings.Join(texts, "; ")
	}
	return wait
}
