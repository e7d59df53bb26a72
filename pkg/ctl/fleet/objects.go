package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
)

// WorkSnapshot reads works, by names if there are any, and the clusters and Leases that tell what they wait
// for, as far as the user may read them.
func (r *Reader) WorkSnapshot(ctx context.Context, namespace, selector string, names []string) (*Snapshot, error) {
	s := &Snapshot{Time: time.Now()}
	var err error
	if s.Works, err = r.Works(ctx, namespace, selector); err != nil {
		return nil, err
	}
	if s.Works, err = named(s.Works, names, "work", func(w *workv1.ManifestWork) string { return w.Name }); err != nil {
		return nil, err
	}
	if len(s.Works) == 0 {
		return s, nil
	}
	if namespace == "" {
		s.Clusters, err = list[clusterv1.ManagedCluster](ctx, r.Clients.ClusterV1().RESTClient(), "managedclusters", "", "")
		s.ClustersKnown = err == nil
	} else if cluster, err := r.Clients.ClusterV1().ManagedClusters().Get(ctx, namespace, metav1.GetOptions{}); err == nil {
		s.Clusters, s.ClustersKnown = []clusterv1.ManagedCluster{*cluster}, true
	}
	s.readLeases(ctx, r)
	return s, nil
}

// ClusterSnapshot reads clusters, by names if there are any, and their works as far as the user may
// list them.
func (r *Reader) ClusterSnapshot(ctx context.Context, selector string, names []string) (*Snapshot, error) {
	s := &Snapshot{Time: time.Now(), ClustersKnown: true}
	var err error
	if s.Clusters, err = list[clusterv1.ManagedCluster](ctx, r.Clients.ClusterV1().RESTClient(), "managedclusters", "", selector); err != nil {
		return nil, cli.APIError("list the clusters", err)
	}
	if s.Clusters, err = named(s.Clusters, names, "cluster", func(c *clusterv1.ManagedCluster) string { return c.Name }); err != nil {
		return nil, err
	}
	namespace := ""
	if len(s.Clusters) == 1 {
		namespace = s.Clusters[0].Name
	}
	s.Works, err = r.Works(ctx, namespace, "")
	if s.WorksUnread = apierrors.IsForbidden(err); s.WorksUnread {
		err = nil
	}
	s.readLeases(ctx, r)
	return s, err
}

// Sets reads sets without their templates, by names if there are any.
func (r *Reader) Sets(ctx context.Context, namespace, selector string, names []string) ([]workv1alpha1.ManifestWorkReplicaSet, error) {
	all, err := r.sets(ctx, namespace, selector)
	if err != nil {
		return nil, cli.APIError("list the sets", err)
	}
	return named(all, names, "set", func(s *workv1alpha1.ManifestWorkReplicaSet) string { return s.Name })
}

// named returns the items with these names; all if there are no names.
func named[T any](all []T, names []string, kind string, name func(*T) string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []T
	for _, wanted := range names {
		i := slices.IndexFunc(all, func(item T) bool { return name(&item) == wanted })
		if i < 0 {
			return nil, cli.Errorf("there is no %s %s", kind, wanted).Do("see which there are: workctl get %ss; -n names the namespace", kind)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Objects reads whole objects of a kind, work, cluster or set, by names if there are any.
func (r *Reader) Objects(ctx context.Context, kind, namespace, selector string, names []string) ([]runtime.Object, error) {
	var objects []runtime.Object
	var err error
	switch kind {
	case "work":
		objects, err = wholes[*workv1.ManifestWork](ctx, r.Clients.WorkV1().RESTClient(), "manifestworks", namespace, selector)
	case "cluster":
		objects, err = wholes[*clusterv1.ManagedCluster](ctx, r.Clients.ClusterV1().RESTClient(), "managedclusters", "", selector)
	default:
		objects, err = wholes[*workv1alpha1.ManifestWorkReplicaSet](ctx, r.Clients.WorkV1alpha1().RESTClient(), "manifestworkreplicasets", namespace, selector)
	}
	if err != nil {
		return nil, cli.APIError(fmt.Sprintf("list the %ss", kind), err)
	}
	return named(objects, names, kind, func(o *runtime.Object) string { return (*o).(metav1.Object).GetName() })
}
