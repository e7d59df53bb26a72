package applied

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Doubt has [Client.Current] read each AppliedManifestWork once more. Call it when objects were
// listed again: if the API server was restored from a backup, the watch of the AppliedManifestWorks
// may notice that seconds later, and Kubernetes deletes objects whose owner does not exist.
func (c *Client) Doubt() { c.doubts.begin() }

// Current returns the AppliedManifestWork with that name, nil if it does not exist. It reads it if it
// is in doubt, and sends no request otherwise.
func (c *Client) Current(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	known, ok := c.Get(name)
	count, doubted := c.doubts.doubted(name)
	if !ok || !doubted {
		return known, nil
	}
	now, err := c.get(ctx, name)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return nil, err
	}
	if gone || now.UID != known.UID {
		c.forget(known)
	}
	c.doubts.confirm(name, count)
	if gone {
		return nil, nil
	}
	c.view.Learn(now)
	return now, nil
}

// doubts knows which AppliedManifestWorks were read since the last call of begin. Its zero value
// doubts none.
type doubts struct {
	mu        sync.Mutex
	count     int                 // calls of begin
	confirmed map[string]struct{} // since the last one
}

func (d *doubts) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	d.confirmed = map[string]struct{}{}
}

// doubted reports whether name was not confirmed since begin. count is for confirm.
func (d *doubts) doubted(name string) (count int, doubted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, confirmed := d.confirmed[name]
	return d.count, d.count > 0 && !confirmed
}

// confirm notes that name was read after doubted returned count.
func (d *doubts) confirm(name string, count int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if count == d.count {
		d.confirmed[name] = struct{}{}
	}
}
