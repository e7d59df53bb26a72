package applied

import (
	"context"
	"strconv"
	"strings"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// OrderAnnotation holds, on an AppliedManifestWork whose manifests are applied in an order, a digest of the spec, how many stages of
// its order are open, and the number of its run if that is not 0.
const OrderAnnotation = "workwire.dev/order"

// Order is how far the order of a spec has come.
type Order struct {
	// Spec is a digest of the spec; empty if its manifests have no order.
	Spec string
	// Opened is the number of stages that are open. In [Work] it is that of the start.
	Opened int
	// Run is how many specs with an order have been in force before: a spec that returns is another run.
	Run int
}

// OrderOf returns how far the order of the spec in force has come, as amw has it, which may be nil.
func OrderOf(amw *workv1.AppliedManifestWork) Order {
	if amw == nil {
		return Order{}
	}
	spec, rest, _ := strings.Cut(amw.Annotations[OrderAnnotation], "/")
	opened, run, numbered := strings.Cut(rest, "/")
	o := Order{Spec: spec}
	var err, errRun error
	o.Opened, err = strconv.Atoi(opened)
	if numbered {
		o.Run, errRun = strconv.Atoi(run)
	}
	if err != nil || errRun != nil || min(o.Opened, o.Run) < 0 {
		return Order{}
	}
	return o
}

func (o Order) String() string {
	if o.Spec == "" {
		return ""
	}
	text := o.Spec + "/" + strconv.Itoa(o.Opened)
	if o.Run > 0 {
		text += "/" + strconv.Itoa(o.Run)
	}
	return text
}

// SetOrder stores how far an order has come, and returns amw in its new state. It returns a conflict if amw has
// changed.
func (c *Client) SetOrder(ctx context.Context, amw *workv1.AppliedManifestWork, order Order) (*workv1.AppliedManifestWork, error) {
	return c.replace(ctx, amw, "annotations", map[string]any{OrderAnnotation: order.String()})
}
