package applied

import (
	"context"
	"strconv"
	"strings"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// OrderAnnotation holds, on an AppliedManifestWork whose manifests are applied in an order, a digest of the spec and how many stages of
// its order are open.
const OrderAnnotation = "workwire.dev/order"

// Order is how far the order of a spec has come.
type Order struct {
	// Spec is a digest of the spec; empty if its manifests have no order.
	Spec string
	// Opened is the number of stages that are open. In [Work] it is that of the start.
	Opened int
}

// OrderOf returns how far the order of the spec in force has come, as amw has it, which may be nil.
func OrderOf(amw *workv1.AppliedManifestWork) Order {
	if amw == nil {
		return Order{}
	}
	spec, opened, _ := strings.Cut(amw.Annotations[OrderAnnotation], "/")
	n, err := strconv.Atoi(opened)
	if err != nil || n < 0 {
		return Order{}
	}
	return Order{Spec: spec, Opened: n}
}

func (o Order) String() string {
	if o.Spec == "" {
		return ""
	}
	return o.Spec + "/" + strconv.Itoa(o.Opened)
}

// SetOrder stores how far an order has come, and returns amw in its new state.
func (c *Client) SetOrder(ctx context.Context, amw *workv1.AppliedManifestWork, order Order) (*workv1.AppliedManifestWork, error) {
	return c.annotate(ctx, amw, map[string]any{OrderAnnotation: order.String()})
}
