package fleet

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/workwire/workwire/pkg/cli"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/explain"
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
	Works         []workv1.ManifestWork
	Sets          []workv1alpha1.ManifestWorkReplicaSet
	// Presence and Leader are the hub's Leases; nil if there is none or the user may not read it.
	Presence, Leader *coordinationv1.Lease
}

// Snapshot reads clusters, works and sets. namespace limits works and sets; "" means all. What the
// user may not read is left out and named in warnings, except works: then it fails.
func (r *Reader) Snapshot(ctx context.Context, namespace string) (*Snapshot, []string, error) {
	s := &Snapshot{Time: time.Now(), ClustersKnown: true}
	var warnings []string
	optional := func(operation string, err error) error {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			warnings = append(warnings, operation+": "+err.Error())
			return nil
		}
		return cli.APIError(operation, err)
	}
	var err error
	if s.Works, err = r.Works(ctx, namespace, ""); err != nil {
		return nil, nil, err
	}
	if s.Clusters, err = list[clusterv1.ManagedCluster](ctx, r.Clients.ClusterV1().RESTClient(), "managedclusters", "", ""); err != nil {
		s.ClustersKnown = false
		if err := optional("list the clusters", err); err != nil {
			return nil, nil, err
		}
	}
	if s.Sets, err = r.sets(ctx, namespace, ""); err != nil {
		if err := optional("list the sets", err); err != nil {
			return nil, nil, err
		}
	}
	s.Presence, s.Leader = r.Leases(ctx)
	return s, warnings, nil
}

// Works lists works without their manifests. namespace "" means all.
func (r *Reader) Works(ctx context.Context, namespace, selector string) ([]workv1.ManifestWork, error) {
	type slim struct {
		Metadata metav1.ObjectMeta         `json:"metadata"`
		Status   workv1.ManifestWorkStatus `json:"status"`
	}
	items, err := list[slim](ctx, r.Clients.WorkV1().RESTClient(), "manifestworks", namespace, selector)
	if err != nil {
		return nil, cli.APIError("list the works", err)
	}
	works := make([]workv1.ManifestWork, len(items))
	for i, item := range items {
		works[i] = workv1.ManifestWork{ObjectMeta: item.Metadata, Status: item.Status}
	}
	return works, nil
}

func (r *Reader) sets(ctx context.Context, namespace, selector string) ([]workv1alpha1.ManifestWorkReplicaSet, error) {
	type slim struct {
		Metadata metav1.ObjectMeta                         `json:"metadata"`
		Status   workv1alpha1.ManifestWorkReplicaSetStatus `json:"status"`
	}
	items, err := list[slim](ctx, r.Clients.WorkV1alpha1().RESTClient(), "manifestworkreplicasets", namespace, selector)
	if err != nil {
		return nil, err
	}
	sets := make([]workv1alpha1.ManifestWorkReplicaSet, len(items))
	for i, item := range items {
		sets[i] = workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: item.Metadata, Status: item.Status}
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

// Leases returns the hub's Leases: presence at the broker, and leader election. They are nil if there
// are none, or the user may not read them.
func (r *Reader) Leases(ctx context.Context) (presence, leader *coordinationv1.Lease) {
	found, err := r.Kube.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + explain.PresenceLease})
	if err != nil {
		found, err = r.Kube.CoordinationV1().Leases(hubNamespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + explain.PresenceLease})
	}
	if err != nil {
		return nil, nil
	}
	presence = newest(found.Items, func(*coordinationv1.Lease) bool { return true })
	if presence == nil {
		return nil, nil
	}
	others, err := r.Kube.CoordinationV1().Leases(presence.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return presence, nil
	}
	return presence, newest(others.Items, func(l *coordinationv1.Lease) bool {
		return l.Name != explain.PresenceLease && strings.HasPrefix(l.Name, "work-hub")
	})
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
func (r *Reader) Facts(ctx context.Context, cluster, name string) (explain.Facts, error) {
	work, err := r.Clients.WorkV1().ManifestWorks(cluster).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return explain.Facts{}, notFound(err, "work", name, "workctl get works -n "+cluster)
	}
	f := explain.Facts{Now: time.Now(), Work: work}
	f.Cluster, err = r.Clients.ClusterV1().ManagedClusters().Get(ctx, cluster, metav1.GetOptions{})
	if err != nil {
		f.Cluster, f.NoCluster = nil, apierrors.IsNotFound(err)
	}
	f.Presence, f.Leader = r.Leases(ctx)
	if namespace, set, ok := strings.Cut(work.Labels[workv1.ReplicaSetLabelKey], "."); ok {
		if found, err := r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Get(ctx, set, metav1.GetOptions{}); err == nil {
			f.Set = found
		}
	}
	return f, nil
}

// notFound returns the error of a read of one object.
func notFound(err error, kind, name, do string) error {
	operation := fmt.Sprintf("get the %s %s", kind, name)
	if apierrors.IsNotFound(err) && apierrors.ReasonForError(err) == metav1.StatusReasonNotFound && statusKind(err) != "" {
		return cli.Errorf("%s: %w", operation, err).Do("see which there are: %s", do)
	}
	return cli.APIError(operation, err)
}

// statusKind returns the resource that a NotFound error is about; empty if the API server does not
// know the resource at all.
func statusKind(err error) string {
	var status apierrors.APIStatus
	if !asStatus(err, &status) || status.Status().Details == nil {
		return ""
	}
	return cmp.Or(status.Status().Details.Name, "")
}

// wholes reads all pages of a list of whole objects.
func wholes[T any](ctx context.Context, client rest.Interface, resource, namespace, selector string, object func(*T) runtime.Object) ([]runtime.Object, error) {
	items, err := list[T](ctx, client, resource, namespace, selector)
	objects := make([]runtime.Object, len(items))
	for i := range items {
		objects[i] = object(&items[i])
	}
	return objects, err
}
