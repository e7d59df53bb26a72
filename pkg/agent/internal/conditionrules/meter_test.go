package conditionrules

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/test/kit"
)

// wide is an object with this number of fields.
func wide(fields int) *unstructured.Unstructured {
	data := map[string]any{}
	for i := range fields {
		data[fmt.Sprint("k", i)] = "x"
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data}}
}

// loopsOver are loops that cel-go took minutes for, within the limit of their cost.
var loopsOver = []string{
	"object.data.all(a, object.data.all(b, object.data.all(c, a != b || b != c || true)))",
	"object.data.all(a, object.data.all(b, a != b ? true : true))",
	"object.data.exists(a, object.data.exists(b, a == '' && b == ''))",
	"object.data.all(a, object.data.all(b, object.zz.yy || true))",
	"object.data.all(a, [1, 2].all(b, a != '' || b > 0))",
}

// TestLoopsAreLinear: the CPU time of a loop grows with its cost, not with the square of it.
func TestLoopsAreLinear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := evaluator(t)
	// The time is that of many runs: threads know theirs to some milliseconds.
	spent := func(expression string, fields, runs int) (time.Duration, uint64) {
		p, variables := compiled(t, e, expression), map[string]any{"object": wide(fields).Object}
		start, cost := threadTime(t), uint64(0)
		for range runs {
			_, cost, _ = p.Run(context.Background(), variables, maxCost)
		}
		return (threadTime(t) - start) / time.Duration(runs), cost
	}
	for _, expression := range []string{"object.data.all(a, a != '')", "object.data.all(a, a != '' ? a != '' || a == '' : true)"} {
		small, cost := spent(expression, 500, 160)
		large, costs := spent(expression, 8000, 10)
		if ratio := float64(costs) / float64(cost); float64(large) > 3*ratio*float64(small) {
			t.Errorf("%s: %v for a cost of %d, %v for %d", expression, small, cost, large, costs)
		} else {
			t.Logf("%s: %v for a cost of %d, %v for %d", expression, small, cost, large, costs)
		}
	}
}

// threadTime returns the CPU time that the calling thread has used, however busy the machine is.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	kit.NoError(t, syscall.Getrusage(syscall.RUSAGE_THREAD, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestLoopsEnd: loops end at once when the context ends, whatever is around them.
func TestLoopsEnd(t *testing.T) {
	e, live := evaluator(t), wide(3000)
	for _, expression := range loopsOver {
		ctx := &endsAfter{Context: t.Context(), asked: 20}
		_, cost, err := compiled(t, e, expression).Run(ctx, map[string]any{"object": live.Object}, maxCost)
		if err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s: after the end of the context it went on to cost %d: %v", expression, cost, err)
		}
	}
}

// endsAfter is a context that ends after it has been asked some times.
type endsAfter struct {
	context.Context //nolint:containedctx // it is one
	asked           int
}

func (c *endsAfter) Err() error {
	if c.asked--; c.asked < 0 {
		return context.Canceled
	}
	return nil
}
