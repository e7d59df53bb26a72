package replicaset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	clusterinformers "github.com/workwire/workwire/pkg/client/informers/externalversions/cluster/v1"
	placementinformers "github.com/workwire/workwire/pkg/client/informers/externalversions/cluster/v1beta1"
	workinformers "github.com/workwire/workwire/pkg/client/informers/externalversions/work/v1alpha1"
)

// Names of the indexes. A value of byPlacement is "<namespace>/<name>" of the
// placement that a set refers to or that decisions are of; one of byCluster is a
// cluster that was chosen.
const (
	byPlacement = "placement"
	byCluster   = "cluster"
)

// source holds all sets, placements, decisions and clusters in memory.
type source struct {
	sets, placements, decisions, clusters cache.SharedIndexInformer
	log                                   *slog.Logger

	mu      sync.Mutex
	failure error // guarded by mu: why the last list or watch failed
}

func newSource(client versioned.Interface, log *slog.Logger) (*source, error) {
	s := &source{log: log}
	s.sets = workinformers.NewManifestWorkReplicaSetInformer(client, "", 0, cache.Indexers{byPlacement: placementsOfSet})
	s.placements = placementinformers.NewPlacementInformer(client, "", 0, cache.Indexers{})
	s.decisions = placementinformers.NewPlacementDecisionInformer(client, "", 0, cache.Indexers{
		byPlacement: placementOfDecision, byCluster: clustersOfDecision,
	})
	s.clusters = clusterinformers.NewManagedClusterInformer(client, 0, cache.Indexers{})
	var faults []error
	for resource, informer := range s.informers() {
		faults = append(faults, informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(
			func(_ context.Context, _ *cache.Reflector, err error) { s.failed(resource, err) }))
	}
	return s, errors.Join(faults...)
}

// informers are those of the source, by resource.
func (s *source) informers() map[string]cache.SharedIndexInformer {
	return map[string]cache.SharedIndexInformer{
		"manifestworkreplicasets": s.sets, "placements": s.placements, "placementdecisions": s.decisions, "managedclusters": s.clusters,
	}
}

// slim drops what nobody here looks at.
func slim(object any) (any, error) {
	if object, ok := object.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return object, nil
}

func placementsOfSet(object any) ([]string, error) {
	set, ok := object.(*workv1alpha1.ManifestWorkReplicaSet)
	if !ok {
		return nil, nil
	}
	keys := make([]string, 0, len(set.Spec.PlacementRefs))
	for _, ref := range set.Spec.PlacementRefs {
		keys = append(keys, set.Namespace+"/"+ref.Name)
	}
	return keys, nil
}

func placementOfDecision(object any) ([]string, error) {
	decision, ok := object.(*clusterv1beta1.PlacementDecision)
	if !ok || decision.Labels[clusterv1beta1.PlacementLabel] == "" {
		return nil, nil
	}
	return []string{decision.Namespace + "/" + decision.Labels[clusterv1beta1.PlacementLabel]}, nil
}

func clustersOfDecision(object any) ([]string, error) {
	decision, ok := object.(*clusterv1beta1.PlacementDecision)
	if !ok {
		return nil, nil
	}
	names := make([]string, 0, len(decision.Status.Decisions))
	for _, cluster := range decision.Status.Decisions {
		names = append(names, cluster.ClusterName)
	}
	return names, nil
}

// start runs the informers in the group until ctx ends.
func (s *source) start(ctx context.Context, group *sync.WaitGroup) {
	for _, informer := range s.informers() {
		group.Go(func() { informer.RunWithContext(ctx) })
	}
}

// wait waits until all is read, and reports false when ctx ended before.
func (s *source) wait(ctx context.Context) bool {
	for _, informer := range s.informers() {
		select {
		case <-ctx.Done():
			return false
		case <-informer.HasSyncedChecker().Done():
		}
	}
	return true
}

// ready tells why not all is read yet.
func (s *source) ready() error {
	for resource, informer := range s.informers() {
		if informer.HasSynced() {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failure != nil {
			return s.failure
		}
		return fmt.Errorf("the %s have not been read yet", resource)
	}
	return nil
}

// failed notes why a list or watch failed, and says what to do.
func (s *source) failed(resource string, err error) {
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err):
		s.log.Debug("a watch starts again", "resource", resource, "reason", err)
		return
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the hub's API serves no %s: apply deploy/crds to it: %w", resource, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the hub may not read %s: grant get, list and watch on them: %w", resource, err)
	default:
		err = fmt.Errorf("list and watch %s: %w", resource, err)
	}
	s.mu.Lock()
	s.failure = err
	s.mu.Unlock()
	s.log.Warn("what ManifestWorkReplicaSets need can not be read; trying again", "error", err)
}

// set gives the set of that name; nil if there is none.
func (s *source) set(name types.NamespacedName) *workv1alpha1.ManifestWorkReplicaSet {
	object, _, _ := s.sets.GetIndexer().GetByKey(name.String())
	set, _ := object.(*workv1alpha1.ManifestWorkReplicaSet)
	return set
}

// placementsOf gives what is known of the placements of the set.
func (s *source) placementsOf(set *workv1alpha1.ManifestWorkReplicaSet) []placement {
	found := make([]placement, 0, len(set.Spec.PlacementRefs))
	for i := range set.Spec.PlacementRefs {
		p := placement{ref: &set.Spec.PlacementRefs[i]}
		key := set.Namespace + "/" + p.ref.Name
		if object, ok, _ := s.placements.GetIndexer().GetByKey(key); ok {
			p.object, _ = object.(*clusterv1beta1.Placement)
		}
		objects, _ := s.decisions.GetIndexer().ByIndex(byPlacement, key)
		for _, object := range objects {
			if decision, ok := object.(*clusterv1beta1.PlacementDecision); ok {
				p.decisions = append(p.decisions, decision)
			}
		}
		found = append(found, p)
	}
	return found
}

// setsOf gives the sets that refer to a placement.
func (s *source) setsOf(placement string) []types.NamespacedName {
	objects, _ := s.sets.GetIndexer().ByIndex(byPlacement, placement)
	names := make([]types.NamespacedName, 0, len(objects))
	for _, object := range objects {
		if set, ok := object.(*workv1alpha1.ManifestWorkReplicaSet); ok {
			names = append(names, nameOf(set))
		}
	}
	return names
}

// presence is what is known of a cluster. One without a ManagedCluster is there,
// and so is one whose presence nobody watches.
func (s *source) presence(cluster string) presence {
	object, _, _ := s.clusters.GetIndexer().GetByKey(cluster)
	known, ok := object.(*clusterv1.ManagedCluster)
	if !ok {
		return presence{}
	}
	return presenceOf(known)
}

func presenceOf(cluster *clusterv1.ManagedCluster) presence {
	p := presence{refused: !cluster.Spec.HubAcceptsClient}
	if available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); available != nil {
		p.away, p.since = available.Status != metav1.ConditionTrue, available.LastTransitionTime.Time
	}
	return p
}
