package policies_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents", AgentEvents: "sources/hub1/clusters/+/agentevents",
}

// everything is all that one may do in a namespace.
var everything = []rbacv1.PolicyRule{{APIGroups: []string{clusterv1.GroupName, workv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}}}

// tenancy is a namespace of jane, who may do everything in it, and clusters of two sets.
type tenancy struct {
	*testing.T
	admin, jane     versioned.Interface
	ns, user        string
	shop, office    string // clusters
	shops, offices  string // their sets
	stopControllers func()
}

func newTenancy(t *testing.T, requireBindings bool) *tenancy {
	t.Helper()
	ns := plane.Namespace(t, "tenant")
	x := &tenancy{
		T: t, ns: ns, user: "jane-" + ns, shops: ns + "-shops", offices: ns + "-offices", admin: versioned.NewForConfigOrDie(plane.REST()),
		shop: plane.CreateNamespace(t, ns+"-shop"), office: plane.CreateNamespace(t, ns+"-office"),
	}
	x.jane = versioned.NewForConfigOrDie(as(plane.REST(), x.user))
	kit.NoError(t, grant(t.Context(), plane.REST(), ns, x.user, everything))
	for cluster, set := range map[string]string{x.shop: x.shops, x.office: x.offices} {
		object := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: set}}
		_, err := x.admin.ClusterV1beta2().ManagedClusterSets().Create(t.Context(), object, metav1.CreateOptions{})
		kit.NoError(t, err)
		member := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster, Labels: map[string]string{clusterv1.ClusterSetLabelKey: set, "tenancy": ns}}}
		member.Spec.HubAcceptsClient = true
		_, err = x.admin.ClusterV1().ManagedClusters().Create(t.Context(), member, metav1.CreateOptions{})
		kit.NoError(t, err)
		t.Cleanup(func() {
			_ = x.admin.ClusterV1().ManagedClusters().Delete(context.Background(), cluster, metav1.DeleteOptions{})
			_ = x.admin.ClusterV1beta2().ManagedClusterSets().Delete(context.Background(), set, metav1.DeleteOptions{})
		})
	}
	x.startControllers(requireBindings)
	return x
}

// startControllers runs the controllers of a hub until the test ends or stopControllers is called.
func (x *tenancy) startControllers(requireBindings bool) {
	x.Helper()
	h, err := hub.New(hub.Config{
		REST: plane.REST(), Source: "hub1", Topics: topics, Transport: memory.NewBroker().Client("hub1-hub"), Election: leader.Options{Disabled: true},
		Controllers:        []string{hub.ControllerClusterSets, hub.ControllerPlacement, hub.ControllerReplicaSet},
		WithoutClusterSets: !requireBindings, Logger: kit.Logger(x),
	})
	kit.NoError(x, err)
	x.stopControllers = kit.Run(x, "hub", h.Run)
}

func (x *tenancy) bind(client versioned.Interface, set string) error {
	_, err := client.ClusterV1beta2().ManagedClusterSetBindings(x.ns).Create(x.Context(), &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Name: set}, Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}, metav1.CreateOptions{})
	return err
}

func (x *tenancy) createPlacement(name string) {
	x.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tenancy": x.ns}},
	}}}
	_, err := x.jane.ClusterV1beta1().Placements(x.ns).Create(x.Context(), p, metav1.CreateOptions{})
	kit.NoError(x, err)
}

// createSet creates a replica set for placements.
func (x *tenancy) createSet(name string, placements ...string) {
	x.Helper()
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, p := range placements {
		set.Spec.PlacementRefs = append(set.Spec.PlacementRefs, workv1alpha1.LocalPlacementReference{Name: p})
	}
	set.Spec.ManifestWorkTemplate.Workload.Manifests = make([]workv1.Manifest, 1)
	set.Spec.ManifestWorkTemplate.Workload.Manifests[0].Raw = []byte(manifest("1"))
	_, err := x.jane.WorkV1alpha1().ManifestWorkReplicaSets(x.ns).Create(x.Context(), set, metav1.CreateOptions{})
	kit.NoError(x, err)
	x.Cleanup(func() { // without a controller
		client := x.admin.WorkV1alpha1().ManifestWorkReplicaSets(x.ns)
		_, _ = client.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = client.Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

func manifest(version string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"till","namespace":"default"},"data":{"version":%q}}`, version)
}

// verified waits until the condition PlacementVerified of a set has this reason and this in its message.
func (x *tenancy) verified(set, reason, message string) {
	x.Helper()
	kit.Await(x, x.admin.WorkV1alpha1().ManifestWorkReplicaSets(x.ns), set, reason+": "+message, func(s *workv1alpha1.ManifestWorkReplicaSet) bool {
		if s == nil {
			return false
		}
		c := meta.FindStatusCondition(s.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionPlacementVerified)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, message)
	})
}

// works returns "cluster=version" of all works in the clusters.
func (x *tenancy) works() string {
	x.Helper()
	var texts []string
	for _, cluster := range []string{x.office, x.shop} {
		list, err := x.admin.WorkV1().ManifestWorks(cluster).List(x.Context(), metav1.ListOptions{})
		kit.NoError(x, err)
		for _, work := range list.Items {
			_, version, _ := strings.Cut(string(work.Spec.Workload.Manifests[0].Raw), `"version":"`)
			texts = append(texts, strings.TrimPrefix(cluster, x.ns+"-")+"="+version[:1])
		}
	}
	return strings.Join(texts, " ")
}

func (x *tenancy) awaitWorks(want string) {
	x.Helper()
	kit.Eventually(x, "works "+want, func() error {
		if got := x.works(); got != want {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// TestTenant: jane, who may do everything in her namespace, reaches the clusters of the set that is bound
// to it, and no others: not by a binding, a placement, a decision that she forges, or a placement of
// another namespace.
func TestTenant(t *testing.T) {
	x := newTenancy(t, true)
	for _, set := range []string{x.offices, clusterv1beta2.GlobalSet, clusterv1beta2.DefaultSet} {
		if err := x.bind(x.jane, set); !apierrors.IsForbidden(err) {
			t.Errorf("jane binds %s: %v", set, err)
		}
	}
	kit.NoError(t, x.bind(x.admin, x.shops))
	x.createPlacement("all")
	x.createSet("till", "all")
	x.awaitWorks("shop=1")
	x.verified("till", "AsExpected", "")

	// A decision that the controller of placements leaves alone, since another one owns it.
	till, err := x.jane.WorkV1alpha1().ManifestWorkReplicaSets(x.ns).Get(t.Context(), "till", metav1.GetOptions{})
	kit.NoError(t, err)
	forged := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{
		clusterv1beta1.PlacementLabel: "all", clusterv1beta1.DecisionGroupIndexLabel: "0", clusterv1beta1.DecisionGroupNameLabel: "",
	}, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(till, workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet")),
	}}}
	decisions := x.jane.ClusterV1beta1().PlacementDecisions(x.ns)
	created, err := decisions.Create(t.Context(), forged, metav1.CreateOptions{})
	kit.NoError(t, err)
	created.Status.Decisions = []clusterv1beta1.ClusterDecision{{ClusterName: x.office}, {ClusterName: "kube-system"}}
	_, err = decisions.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	kit.NoError(t, err)
	x.verified("till", "NotAsExpected", "2 clusters are in no ManagedClusterSet that is bound to the namespace, and their works stay unchanged: kube-system, "+x.office)
	x.createSet("forger", "all")
	x.verified("forger", "NotAsExpected", "kube-system, "+x.office)

	// A placement that may choose the other cluster, in another namespace.
	other := newNamespaceWithPlacement(x)
	x.createSet("stranger", "elsewhere")
	x.verified("stranger", "PlacementDecisionNotFound", "")
	x.createSet("climber", other+"/elsewhere")
	kit.Await(t, x.admin.WorkV1alpha1().ManifestWorkReplicaSets(x.ns), "climber", "is invalid", func(s *workv1alpha1.ManifestWorkReplicaSet) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionManifestworkApplied)
		return c != nil && c.Reason == workv1alpha1.ReasonInvalidManifestWorkName
	})
	for _, text := range strings.Fields(x.works()) {
		if text != "shop=1" {
			t.Errorf("there is a work %s", text)
		}
	}
	list, err := x.admin.WorkV1().ManifestWorks("kube-system").List(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	if len(list.Items) > 0 {
		t.Errorf("there are works outside of the clusters: %v", list.Items)
	}
}

// newNamespaceWithPlacement returns a namespace with the set offices bound and a placement "elsewhere".
func newNamespaceWithPlacement(x *tenancy) string {
	x.Helper()
	other := *x
	other.ns, other.jane = plane.Namespace(x, "other"), x.admin
	kit.NoError(x, other.bind(x.admin, x.offices))
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	_, err := x.admin.ClusterV1beta1().Placements(other.ns).Create(x.Context(), placement, metav1.CreateOptions{})
	kit.NoError(x, err)
	kit.Await(x, x.admin.ClusterV1beta1().Placements(other.ns), "elsewhere", "selects the office", func(p *clusterv1beta1.Placement) bool {
		return p != nil && p.Status.NumberOfSelectedClusters == 1
	})
	return other.ns
}

// TestUpgrade: a hub that begins to require bindings deletes no work and changes none in a namespace
// without. Once a set is bound, its clusters get the template.
func TestUpgrade(t *testing.T) {
	x := newTenancy(t, false)
	x.createPlacement("all")
	x.createSet("till", "all")
	x.awaitWorks("office=1 shop=1")
	x.stopControllers()

	x.startControllers(true)
	_, err := x.jane.WorkV1alpha1().ManifestWorkReplicaSets(x.ns).Patch(t.Context(), "till", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"version":"2"}},"spec":{"manifestWorkTemplate":{"workload":{"manifests":[%s]}}}}`, manifest("2")), metav1.PatchOptions{})
	kit.NoError(t, err)
	x.verified("till", "NotAsExpected", "2 clusters are in no ManagedClusterSet")
	kit.Await(t, x.admin.ClusterV1beta1().Placements(x.ns), "all", "keeps its decisions", func(p *clusterv1beta1.Placement) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, clusterv1beta1.PlacementConditionBound)
		return c != nil && c.Reason == clusterv1beta1.ReasonDecisionsKept && p.Status.NumberOfSelectedClusters == 2
	})
	if got := x.works(); got != "office=1 shop=1" {
		t.Errorf("the works are %s", got)
	}
	kit.NoError(t, x.bind(x.admin, clusterv1beta2.GlobalSet))
	x.awaitWorks("office=2 shop=2")
	x.verified("till", "AsExpected", "")
}
