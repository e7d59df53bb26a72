package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/workstate"
)

// pageSize is how many objects a page of a list has, as kubectl's.
const pageSize = 500

// hubNamespace is the namespace of the hub's Leases for those who may not list all Leases.
const hubNamespace = "workwire-hub"

// Reader reads the hub's API. It is safe for concurrent use.
type Reader struct {
	// Clients are those of Workwire's kinds, Kube those of Kubernetes'.
	Clients versioned.Interface
	Kube    kubernetes.Interface
}

// NewReader returns a reader with clients of config.
func NewReader(config *rest.Config) (*Reader, error) {
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the hub's API: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the hub's API: %w", err)
	}
	return &Reader{Clients: clients, Kube: kube}, nil
}

// Snapshot is the state of a fleet. Works have no manifests, sets no template.
type Snapshot struct {
	Time time.Time
	// Clusters are the ManagedClusters; ClustersKnown is false if the user may not list them.
	Clusters      []clusterv1.ManagedCluster
	ClustersKnown bool
	// WorksUnread is true if the user may not list works.
	Works       []workv1.ManifestWork
	WorksUnread bool
	Sets        []workv1alpha1.ManifestWorkReplicaSet
	// Presence and Leader are the hub's Leases; nil if there is none or the user may not read it. Of
	// several hubs, they are those of the one that was seen the longest ago.
	Presence, Leader *coordinationv1.Lease
	// hubs are the Leases of each hub of several, by the annotation of the clusters that it serves.
	hubs map[string]hubLeases
}

// hubLeases are the Leases of a hub.
type hubLeases struct{ presence, leader *coordinationv1.Lease }

// readLeases reads the Leases of the hubs that serve the clusters of s.
func (s *Snapshot) readLeases(ctx context.Context, r *Reader) {
	s.hubs = make(map[string]hubLeases)
	for i := range s.Clusters {
		hub := s.Clusters[i].Annotations[clusterv1.HubAnnotationKey]
		if _, ok := s.hubs[hub]; hub == "" || ok {
			continue
		}
		presence, leader := r.Leases(ctx, &s.Clusters[i])
		s.hubs[hub] = hubLeases{presence, leader}
		if presence != nil && (s.Presence == nil || presence.Spec.RenewTime.Before(s.Presence.Spec.RenewTime)) {
			s.Presence, s.Leader = presence, leader
		}
	}
	if len(s.hubs) == 0 {
		s.Presence, s.Leader = r.Leases(ctx, nil)
	}
}

// leasesOf returns the Leases of the hub that serves cluster, which may be nil.
func (s *Snapshot) leasesOf(cluster *clusterv1.ManagedCluster) (presence, leader *coordinationv1.Lease) {
	if cluster != nil && cluster.Annotations[clusterv1.HubAnnotationKey] != "" {
		of := s.hubs[cluster.Annotations[clusterv1.HubAnnotationKey]]
		return of.presence, of.leader
	}
	return s.Presence, s.Leader
}

// Snapshot reads clusters, works and sets. namespace limits works and sets; "" means all. What the
// user may not read is left out and named in warnings, except works: then it fails.
func (r *Reader) Snapshot(ctx context.Context, namespace string) (*Snapshot, []string, error) {
	s := &Snapshot{Time: time.Now(), ClustersKnown: true}
	var w missing
	var err error
	if s.Works, err = r.Works(ctx, namespace, ""); err != nil {
		return nil, nil, err
	}
	if s.Clusters, err = list[clusterv1.ManagedCluster](ctx, r.Clients.ClusterV1().RESTClient(), "managedclusters", "", ""); err != nil {
		s.ClustersKnown = false
		if err := w.optional("list the clusters", err); err != nil {
			return nil, nil, err
		}
	}
	if s.Sets, err = r.sets(ctx, namespace, ""); err != nil {
		if err := w.optional("list the sets", err); err != nil {
			return nil, nil, err
		}
	}
	s.readLeases(ctx, r)
	return s, w.warnings, nil
}

// missing collects what the user may not read, or the API does not serve.
type missing struct{ warnings []string }

// optional returns the error of a read, unless it is one to be left out with a warning.
func (m *missing) optional(operation string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		m.warnings = append(m.warnings, operation+": "+err.Error())
		return nil
	}
	return cli.APIError(operation, err)
}

// Works lists works without their manifests. namespace "" means all.
func (r *Reader) Works(ctx context.Context, namespace, selector string) ([]workv1.ManifestWork, error) {
	items, err := list[withoutSpec[workv1.ManifestWorkStatus]](ctx, r.Clients.WorkV1().RESTClient(), "manifestworks", namespace, selector)
	if err != nil {
		return nil, cli.APIError("list the works", err)
	}
	works := make([]workv1.ManifestWork, len(items))
	for i := range items {
		works[i] = workv1.ManifestWork{ObjectMeta: items[i].Metadata.ObjectMeta, Status: items[i].Status}
	}
	return works, nil
}

// withoutSpec is an object without its spec, and without its managed fields, which are most of its metadata.
type withoutSpec[Status any] struct {
	Metadata struct {
		metav1.ObjectMeta
		ManagedFields ignored `json:"managedFields"` // instead of those of ObjectMeta
	} `json:"metadata"`
	Status Status `json:"status"`
}

type ignored struct{}

func (*ignored) UnmarshalJSON([]byte) error { return nil }

func (r *Reader) sets(ctx context.Context, namespace, selector string) ([]workv1alpha1.ManifestWorkReplicaSet, error) {
	items, err := list[withoutSpec[workv1alpha1.ManifestWorkReplicaSetStatus]](ctx, r.Clients.WorkV1alpha1().RESTClient(), "manifestworkreplicasets", namespace, selector)
	if err != nil {
		return nil, err
	}
	sets := make([]workv1alpha1.ManifestWorkReplicaSet, len(items))
	for i, item := range items {
		sets[i] = workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: item.Metadata.ObjectMeta, Status: item.Status}
	}
	return sets, nil
}

// list reads all pages of a list into items of type T.
func list[T any](ctx context.Context, client rest.Interface, resource, namespace, selector string) ([]T, error) {
	var all []T
	for next := ""; ; {
		data, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
			Param("limit", strconv.Itoa(pageSize)).Param("continue", next).Param("labelSelector", selector).Do(ctx).Raw()
		if err != nil {
			return nil, err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("decode a list of %s: %w", resource, err)
		}
		all = append(all, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return all, nil
		}
	}
}

// Leases returns the Leases of the hub that serves cluster, nil for the only hub: presence at the
// broker, and leader election. They are nil if there are none, or the user may not read them. A hub
// without a selector that was seen later serves the cluster now, whatever its annotation says.
func (r *Reader) Leases(ctx context.Context, cluster *clusterv1.ManagedCluster) (presence, leader *coordinationv1.Lease) {
	hub := ""
	if cluster != nil {
		hub = cluster.Annotations[clusterv1.HubAnnotationKey]
	}
	found := r.leasesNamed(ctx, clusterv1.HubPresenceLeaseName)
	if hub != "" {
		found = append(found, r.leasesNamed(ctx, clusterv1.HubPresenceLease(hub))...)
	}
	presence = newest(found, func(*coordinationv1.Lease) bool { return true })
	if presence == nil {
		return nil, nil
	}
	others, err := r.Kube.CoordinationV1().Leases(presence.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return presence, nil
	}
	return presence, newest(others.Items, func(l *coordinationv1.Lease) bool {
		if presence.Name != clusterv1.HubPresenceLeaseName {
			return l.Name == hub
		}
		return !strings.HasPrefix(l.Name, clusterv1.HubPresenceLeaseName) && strings.HasPrefix(l.Name, "work-hub")
	})
}

// HubNamespace returns the namespace in which the hub, or all of several, have their Leases and look for tokens; if no
// Lease can be read, that of a hub that is not in a pod.
func (r *Reader) HubNamespace(ctx context.Context) string {
	presence := newest(r.leases(ctx, metav1.ListOptions{}), func(l *coordinationv1.Lease) bool {
		return l.Name == clusterv1.HubPresenceLeaseName || strings.HasPrefix(l.Name, clusterv1.HubPresenceLeaseName+".") // of one of several
	})
	if presence != nil {
		return presence.Namespace
	}
	return leader.DefaultNamespace
}

// leasesNamed returns the Leases of this name that the user may read.
func (r *Reader) leasesNamed(ctx context.Context, name string) []coordinationv1.Lease {
	return r.leases(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
}

// leases returns those of the Leases that the user may read.
func (r *Reader) leases(ctx context.Context, which metav1.ListOptions) []coordinationv1.Lease {
	found, err := r.Kube.CoordinationV1().Leases("").List(ctx, which)
	if err != nil {
		found, err = r.Kube.CoordinationV1().Leases(hubNamespace).List(ctx, which)
	}
	if err != nil {
		return nil
	}
	return found.Items
}

// newest returns the Lease that was renewed last.
func newest(leases []coordinationv1.Lease, is func(*coordinationv1.Lease) bool) *coordinationv1.Lease {
	var last *coordinationv1.Lease
	for i := range leases {
		l := &leases[i]
		if l.Spec.RenewTime != nil && is(l) && (last == nil || l.Spec.RenewTime.After(last.Spec.RenewTime.Time)) {
			last = l
		}
	}
	return last
}

// Facts reads what [explain.Explain] needs of a work. What the user may not read is left out.
func (r *Reader) Facts(ctx context.Context, cluster, name string) (workstate.Facts, error) {
	work, err := r.Clients.WorkV1().ManifestWorks(cluster).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return workstate.Facts{}, notFound(err, "work", name, "workctl get works -n "+cluster)
	}
	f := workstate.Facts{Now: time.Now(), Work: work}
	f.Cluster, err = r.Clients.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		f.Cluster, f.NoCluster = nil, apierrors.IsNotFound(err)
	}
	f.Presence, f.Leader = r.Leases(ctx, f.Cluster)
	if set, ok := workv1alpha1.ParseWorkLabel(work.Labels[workv1.ReplicaSetLabelKey]); ok {
		if found, err := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{}); err == nil {
			f.Set = found
		}
	}
	return f, nil
}

// notFound returns the error of a read of one object. It says which objects there are only if the API server knows the resource: its answer names
// the object then.
func notFound(err error, kind, name, do string) error {
	operation := fmt.Sprintf("get the %s %s", kind, name)
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonNotFound && status.Status().Details != nil && status.Status().Details.Name != "" {
		return cli.Errorf("%s: %w", operation, err).Do("see which there are: %s", do)
	}
	return cli.APIError(operation, err)
}

// wholes reads all pages of a list of whole objects, which have the kind that the API gives them.
func wholes[T runtime.Object](ctx context.Context, client rest.Interface, resource, namespace, selector string) ([]runtime.Object, error) {
	items, err := list[T](ctx, client, resource, namespace, selector)
	objects := make([]runtime.Object, len(items))
	for i := range items {
		objects[i] = items[i]
	}
	return objects, err
}
