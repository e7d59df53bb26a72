package order_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/agent/internal/order"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

var (
	before = order.Item{Hook: workv1.HookBefore}
	after  = order.Item{Hook: workv1.HookAfter}
)

func wave(n int) order.Item { return order.Item{Wave: n} }

// Each stage names the manifests that open with it.
func TestStages(t *testing.T) {
	for name, c := range map[string]struct {
		items []order.Item
		want  [][]int // nil: there is no order
	}{
		"nothing":                 {},
		"without annotations":     {items: []order.Item{{}, {}}},
		"one wave, of any number": {items: []order.Item{wave(7), wave(7)}},
		"waves":                   {items: []order.Item{wave(1), wave(0), wave(-3), wave(1)}, want: [][]int{{2}, {1}, {0, 3}}},
		"a hook alone":            {items: []order.Item{before}, want: [][]int{{0}}},
		"hooks":                   {items: []order.Item{after, wave(0), before}, want: [][]int{{2}, {1}, {0}}},
		"waves of hooks": {
			items: []order.Item{{Hook: workv1.HookAfter, Wave: -1}, wave(5), {Hook: workv1.HookBefore, Wave: 2}, before, after},
			want:  [][]int{{3}, {2}, {1}, {0}, {4}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := order.Of(c.items, false)
			if o.IsZero() != (c.want == nil) {
				t.Fatalf("IsZero %v", o.IsZero())
			}
			var stages [][]int
			for opened := range len(c.want) {
				var stage []int
				for i := range c.items {
					if o.Waits(i, opened) && !o.Waits(i, opened+1) {
						stage = append(stage, i)
					}
				}
				stages = append(stages, stage)
			}
			if diff := cmp.Diff(c.want, stages); diff != "" {
				t.Error(diff)
			}
			for i := range c.items {
				if o.Waits(i, max(order.First, len(c.want))) {
					t.Errorf("manifest %d waits when everything is open", i)
				}
			}
		})
	}
}

// All manifests of a work that depends on others wait at first.
func TestDependent(t *testing.T) {
	o := order.Of([]order.Item{{}, {}}, true)
	if o.IsZero() || !o.Waits(0, 0) || !o.Waits(1, 0) || o.Waits(0, order.First) || o.Finished(order.First) {
		t.Errorf("the order is %+v", o)
	}
}

func TestHasRun(t *testing.T) {
	o := order.Of([]order.Item{before, wave(0), after}, false)
	for opened, want := range map[int][]int{0: nil, 1: nil, 2: {0}, 3: {0}, 4: {0, 2}} {
		var got []int
		for i := range 3 {
			if o.HasRun(i, opened) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d open stages %v have run, want %v", opened, got, want)
		}
	}
}

func TestWait(t *testing.T) {
	o := order.Of([]order.Item{wave(1), wave(0), wave(0), wave(0), wave(0), wave(2), before}, false)
	for name, c := range map[string]struct {
		opened  int
		unready []int
		want    condition.Waiting
	}{
		"the first stage":    {1, []int{6}, condition.Waiting{Reason: workv1.ReasonWaitsForHook, Message: "Waits for a hook: 6 is not ready"}},
		"a wave":             {2, []int{1, 3}, condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0: 1 is not ready; 3 is not ready"}},
		"the lowest wave":    {3, []int{0, 2}, condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0: 2 is not ready"}},
		"many":               {2, []int{1, 2, 3, 4}, condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0: 1 is not ready; 2 is not ready; 3 is not ready; and 1 more"}},
		"what is not open":   {2, []int{0, 1, 5}, condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0: 1 is not ready"}},
		"nothing any longer": {2, nil, condition.Waiting{Reason: workv1.ReasonWaitsForWave, Message: "Waits for wave 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := o.Wait(c.opened, func(i int) string {
				if slices.Contains(c.unready, i) {
					return fmt.Sprintf("%d is not ready", i)
				}
				return ""
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// No manifest of a stage is applied before all of the earlier ones have been ready at once, an agent that starts again with the number of open
// stages goes on, and in the end everything is applied, if everything becomes ready.
func TestEverythingInOrder(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		items := make([]order.Item, 1+random.IntN(8))
		for i := range items {
			items[i] = order.Item{Hook: []string{"", "", workv1.HookBefore, workv1.HookAfter}[random.IntN(4)], Wave: random.IntN(4) - 2}
		}
		o := order.Of(items, false)
		if o.IsZero() {
			continue
		}
		earlier := func(a, b int) bool {
			phase := func(i int) int { return slices.Index([]string{workv1.HookBefore, "", workv1.HookAfter}, items[i].Hook) }
			return phase(a) < phase(b) || phase(a) == phase(b) && items[a].Wave < items[b].Wave
		}
		applied, ready := make([]bool, len(items)), make([]bool, len(items))
		opened := order.First
		for range 400 {
			for i := range items {
				if o.Waits(i, opened) || applied[i] {
					continue
				}
				for j := range items {
					if earlier(j, i) && !ready[j] {
						t.Fatalf("seed %d: %v: %d is applied before %d is ready", seed, items, i, j)
					}
				}
				applied[i] = true
			}
			for i := range items { // some come up
				ready[i] = ready[i] || applied[i] && random.IntN(3) == 0
			}
			if o.Opens(opened, func(i int) bool { return ready[i] }) {
				opened++
			} else if i := random.IntN(len(items)); applied[i] { // one goes down, which takes back nothing
				ready[i] = false
			}
			o = order.Of(items, false) // the agent starts again
		}
		if !o.Finished(opened) || slices.Contains(applied, false) {
			t.Fatalf("seed %d: %v: %v are applied, %d stages open", seed, items, applied, opened)
		}
		if o.Opens(opened, func(int) bool { return true }) {
			t.Fatalf("seed %d: a finished order opens", seed)
		}
	}
}
