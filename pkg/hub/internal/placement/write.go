package placement

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	typed "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/cluster/v1beta1"
)

// parallelWrites is the number of PlacementDecisions of a Placement that are written at a time.
const parallelWrites = 8

// execute performs the writes of p in their order.
func (c *Controller) execute(ctx context.Context, key types.NamespacedName, p *plan) error {
	client := c.cfg.Client.ClusterV1beta1().PlacementDecisions(key.Namespace)
	for _, stage := range [][]write{p.first, p.then} {
		if err := inParallel(stage, func(w write) error { return c.write(ctx, client, w) }); err != nil {
			return err
		}
	}
	return c.removeAll(ctx, key, p.remove)
}

// write performs w and sets the metadata of w.object to the stored metadata.
func (c *Controller) write(ctx context.Context, client typed.PlacementDecisionInterface, w write) (err error) {
	operation := "update"
	if w.create {
		operation = "create"
	}
	defer func() { c.metrics.countWrite(operation, err) }()
	if w.previous != nil {
		w.object.ObjectMeta = w.previous.ObjectMeta
	}
	written := w.object
	switch {
	case w.create:
		if written, err = client.Create(ctx, w.object, metav1.CreateOptions{}); err == nil {
			c.decisions.Created(written)
		}
	case w.metadata:
		if written, err = client.Update(ctx, w.object, metav1.UpdateOptions{}); err == nil {
			c.decisions.Wrote(written)
		}
	}
	if err == nil && w.status {
		w.object.ObjectMeta = written.ObjectMeta // written has the stored clusters
		if written, err = client.UpdateStatus(ctx, w.object, metav1.UpdateOptions{}); err == nil {
			c.decisions.Wrote(written)
		}
	}
	if err != nil {
		return fmt.Errorf("%s PlacementDecision %s/%s: %w", operation, w.object.Namespace, w.object.Name, err)
	}
	w.object.ObjectMeta = written.ObjectMeta
	return nil
}

// removeAll deletes decisions.
func (c *Controller) removeAll(ctx context.Context, key types.NamespacedName, decisions []*clusterv1beta1.PlacementDecision) error {
	client := c.cfg.Client.ClusterV1beta1().PlacementDecisions(key.Namespace)
	return inParallel(decisions, func(d *clusterv1beta1.PlacementDecision) error {
		err := client.Delete(ctx, d.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(d.UID))})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		c.metrics.countWrite("delete", err)
		if err != nil {
			return fmt.Errorf("delete PlacementDecision %s/%s: %w", key.Namespace, d.Name, err)
		}
		c.decisions.Deleted(d)
		return nil
	})
}

// inParallel calls do for all items and returns when all calls have returned. It returns the first
// error; an error does not stop the other calls.
func inParallel[T any](items []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	for _, item := range items {
		group.Go(func() error { return do(item) })
	}
	return group.Wait()
}
