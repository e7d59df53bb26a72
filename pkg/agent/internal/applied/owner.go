package applied

import (
	"context"
	"fmt"
	"iter"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// ClusterAnnotation holds, on an AppliedManifestWork, the name under which its agent serves the cluster. Those of
// older agents do not have it.
const ClusterAnnotation = "workwire.dev/cluster-name"

// Owner says which AppliedManifestWorks are an agent's. Two agents with one id, which is a hash of the broker's address by
// default, and different names of the cluster would take each other's works for those of nobody, and have their objects deleted.
type Owner struct {
	// AgentID is written to every AppliedManifestWork. Required.
	AgentID string
	// Cluster is the name under which the agent serves the cluster; empty: it is not written.
	Cluster wire.ClusterName
	// TakesOver is a name under which the cluster was served before; empty: none.
	TakesOver wire.ClusterName
}

// Owns reports whether amw is the agent's.
func (o Owner) Owns(amw *workv1.AppliedManifestWork) bool {
	return amw.Spec.AgentID == o.AgentID && !o.foreign(amw)
}

// foreign reports whether amw is of an agent that serves the cluster under another name, with the same id.
func (o Owner) foreign(amw *workv1.AppliedManifestWork) bool {
	name := wire.ClusterName(amw.Annotations[ClusterAnnotation])
	return amw.Spec.AgentID == o.AgentID && name != "" && o.Cluster != "" && name != o.Cluster && name != o.TakesOver
}

// Check returns an error if another agent has served the cluster before under another name: the oldest of all decides, so
// that of two agents one goes on.
func (o Owner) Check(all iter.Seq[*workv1.AppliedManifestWork]) error {
	var oldest *workv1.AppliedManifestWork
	for amw := range all {
		if amw.Spec.AgentID == o.AgentID && amw.Annotations[ClusterAnnotation] != "" && (oldest == nil || before(amw, oldest)) {
			oldest = amw
		}
	}
	if oldest == nil || o.Owns(oldest) {
		return nil
	}
	name := oldest.Annotations[ClusterAnnotation]
	return fmt.Errorf("an agent serves this cluster as %s already, since %s: its AppliedManifestWork %s has the annotation %s=%s. "+
		"Two agents with different names for one cluster would delete each other's objects: start this one with --cluster-name=%s, "+
		"with an --agent-id of its own if it is to serve the cluster beside the other, or, if the cluster was renamed and no other agent runs, with --take-over-cluster=%s",
		name, oldest.CreationTimestamp.UTC().Format("2006-01-02 15:04:05"), oldest.Name, ClusterAnnotation, name, name, name)
}

// taken is the error about a name that an agent has that serves the cluster under another name.
func taken(amw *workv1.AppliedManifestWork) error {
	return fmt.Errorf("the AppliedManifestWork %s is of an agent that serves this cluster as %s: one cluster has one name", amw.Name, amw.Annotations[ClusterAnnotation])
}

func before(a, b *workv1.AppliedManifestWork) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// WriteClusterName writes the name of the cluster to what the agent owns, where others have to see it: to the oldest if none
// has a name, and to all of the name that is taken over. Those have no work any more: sources do not know the
// works of the new name by their UIDs.
func (c *Client) WriteClusterName(ctx context.Context) error {
	owner := c.config.Owner
	if owner.Cluster == "" {
		return nil
	}
	var oldest *workv1.AppliedManifestWork
	named := false
	for _, amw := range slices.Collect(c.All()) {
		if !owner.Owns(amw) || amw.DeletionTimestamp != nil {
			continue
		}
		name := amw.Annotations[ClusterAnnotation]
		named = named || name != ""
		switch {
		case name != "" && name != string(owner.Cluster):
			_, err := c.annotate(ctx, amw, map[string]any{ClusterAnnotation: string(owner.Cluster), UIDAnnotation: nil})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		case oldest == nil || before(amw, oldest):
			oldest = amw
		}
	}
	if named || oldest == nil {
		return nil
	}
	if _, err := c.annotate(ctx, oldest, map[string]any{ClusterAnnotation: string(owner.Cluster)}); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
