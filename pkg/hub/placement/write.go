package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	typed "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/cluster/v1beta1"
)

// parallel is how many PlacementDecisions of one placement are written at a time.
const parallel = 8

// carrier carries out one plan.
type carrier struct {
	*Controller
	key    types.NamespacedName
	client typed.PlacementDecisionInterface

	mu      sync.Mutex
	written map[string]metav1.ObjectMeta // guarded by mu: by name, as the API server last returned it
}

// carryOut writes what p calls for, in its order.
func (c *Controller) carryOut(ctx context.Context, key types.NamespacedName, p *plan) error {
	carrier := &carrier{
		Controller: c, key: key, client: c.cfg.Client.ClusterV1beta1().PlacementDecisions(key.Namespace),
		written: make(map[string]metav1.ObjectMeta),
	}
	for _, stage := range [][]write{p.first, p.then} {
		if err := inParallel(stage, func(w write) error { return carrier.write(ctx, w) }); err != nil {
			return err
		}
	}
	return c.removeAll(ctx, key, p.remove)
}

// write carries out w.
func (c *carrier) write(ctx context.Context, w write) (err error) {
	what := "update"
	if w.create {
		what = "create"
	}
	defer func() { c.metrics.wrote(what, err) }()
	c.mu.Lock()
	if earlier, ok := c.written[w.object.Name]; ok {
		w.object.ObjectMeta = earlier
	}
	c.mu.Unlock()
	object := w.object
	switch {
	case w.create:
		object, err = c.client.Create(ctx, object, metav1.CreateOptions{})
	case w.metadata:
		object, err = c.client.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err == nil && w.status {
		if w.create || w.metadata {
			c.wrote(object)
		}
		next := w.object // what the API server returned has the clusters as they were
		next.ObjectMeta = object.ObjectMeta
		object, err = c.client.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("%s PlacementDecision %s/%s: %w", what, c.key.Namespace, w.object.Name, err)
	}
	c.wrote(object)
	return nil
}

// wrote notes what the API server returned.
func (c *carrier) wrote(object *clusterv1beta1.PlacementDecision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[object.Name] = object.ObjectMeta
	c.progress.await(c.key, echo{name: object.Name, uid: object.UID, version: object.ResourceVersion}, time.Now())
}

// removeAll deletes decisions.
func (c *Controller) removeAll(ctx context.Context, key types.NamespacedName, decisions []*clusterv1beta1.PlacementDecision) error {
	client := c.cfg.Client.ClusterV1beta1().PlacementDecisions(key.Namespace)
	return inParallel(decisions, func(d *clusterv1beta1.PlacementDecision) error {
		err := client.Delete(ctx, d.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(d.UID))})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		c.metrics.wrote("delete", err)
		if err != nil {
			return fmt.Errorf("delete PlacementDecision %s/%s: %w", key.Namespace, d.Name, err)
		}
		c.progress.await(key, echo{name: d.Name, uid: d.UID}, time.Now())
		return nil
	})
}

// inParallel does something to all items and returns when all are done. One that
// fails does not keep others from being done; the error is the first.
func inParallel[T any](items []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, item := range items {
		group.Go(func() error { return do(item) })
	}
	return group.Wait()
}
