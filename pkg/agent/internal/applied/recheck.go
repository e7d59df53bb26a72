package applied

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Recheck makes [Client.Current] read each AppliedManifestWork once more. Call it when objects were
// listed again: if the API server was restored from a backup, the watch of the AppliedManifestWorks
// may notice that seconds later, and Kubernetes deletes objects whose owner does not exist.
func (c *Client) Recheck() { c.checks.begin() }

// Current returns the AppliedManifestWork with that name, nil if it does not exist. It reads it if
// [Client.Recheck] was called since it was read last, and sends no request otherwise.
func (c *Client) Current(ctx context.Context, name string) (*workv1.AppliedManifestWork, error) {
	known, ok := c.Get(name)
	count, due := c.checks.due(name)
	if !ok || !due {
		return known, nil
	}
	now, err := c.Reread(ctx, known)
	if err == nil {
		c.checks.confirm(name, count)
	}
	return now, err
}

// Reread reads an AppliedManifestWork that is known, and returns it as it is now, nil if it does not exist. The watch may be late, and
// show one again that is gone.
func (c *Client) Reread(ctx context.Context, known *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	now, err := c.get(ctx, known.Name)
	switch {
	case apierrors.IsNotFound(err) && !object.IsNotServed(err): // not a 404 of its kind, or of a proxy
		c.forget(known)
		return nil, nil
	case err != nil:
		return nil, err
	case now.UID != known.UID:
		c.forget(known)
		c.view.Learn(now)
	}
	return now, nil
}

// checks knows which AppliedManifestWorks were read since the last call of begin. Before the first one, none is
// due. It is safe for concurrent use.
type checks struct {
	mu        sync.Mutex
	count     int                 // calls of begin
	confirmed map[string]struct{} // since the last one
}

func (c *checks) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.confirmed = map[string]struct{}{}
}

// due reports whether name was not confirmed since begin. count is for confirm.
func (c *checks) due(name string) (count int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, confirmed := c.confirmed[name]
	return c.count, c.count > 0 && !confirmed
}

// confirm notes that name was read after due returned count.
func (c *checks) confirm(name string, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count == c.count {
		c.confirmed[name] = struct{}{}
	}
}
