package integration

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/explain"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// TestExplain checks that workctl explain tells the causes apart that a real hub, broker, agent and API
// server produce, one after another.
func TestExplain(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	works := w.Works(0)
	accept(w)
	w.StartHub()

	w.Create(works, w.Work(0, "web", "1", "a"))
	blocked(w, "web", workstate.AgentOff, "ManagedCluster "+string(w.Clusters[0]))

	w.StartAgent(0, func(c *agent.Config) { c.Kube = limited(w) })
	w.Applied(works, "web")
	blocked(w, "web", "", "")

	annotate(w, "web", `"true"`)
	w.Update(works, w.Work(0, "web", "2", "a"))
	blocked(w, "web", workstate.Paused, "workctl resume work web -n "+string(w.Clusters[0]))
	annotate(w, "web", "null")
	w.Applied(works, "web")
	blocked(w, "web", "", "")

	createManifest(w, "secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":%q}}`)
	blocked(w, "secret", workstate.Forbidden, "Secret "+w.Targets[0]+"/s")

	createManifest(w, "pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":%q},
		"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"app","image":"app"}]}}`)
	blocked(w, "pod", workstate.Unschedulable, "Pod "+w.Targets[0]+"/p")

	createManifest(w, "held", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","namespace":%q,"finalizers":["example.com/hold"]}}`)
	w.Applied(works, "held")
	w.Delete(works, "held")
	blocked(w, "held", workstate.Finalizer, "ConfigMap "+w.Targets[0]+"/held waits for its finalizers example.com/hold")
	_, err := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).CoreV1().ConfigMaps(w.Targets[0]).Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	kit.NoError(t, err)
	w.Gone(works, "held")
	refusedWorks(w)

	w.Broker.Stop()
	w.Update(works, w.Work(0, "web", "3", "a"))
	blocked(w, "web", workstate.BrokerOff, "start the broker")
}

// blocked waits until a work of the first cluster has a blocker with this cause and text; "" means none.
// Both outputs of workctl explain must tell it.
func blocked(w *world.World, name string, cause workstate.Cause, want string) {
	w.Helper()
	blockedLater(w, 0, name, cause, want)
}

// blockedLater is like blocked for somebody who looks later.
func blockedLater(w *world.World, later time.Duration, name string, cause workstate.Cause, want string) {
	w.Helper()
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(w, err)
	kit.Eventually(w, fmt.Sprintf("work %s is blocked by %q", name, cause), func() error {
		facts, err := reader.Facts(w.Context(), string(w.Clusters[0]), name)
		if err != nil {
			return err
		}
		facts.Now = facts.Now.Add(later)
		e := explain.Explain(facts)
		var b workstate.Blocker
		if e.Blocker != nil {
			b = *e.Blocker
		}
		if b.Cause != cause || !strings.Contains(b.Object+" "+b.Message+" "+b.Do, want) {
			return fmt.Errorf("%s: %+v", e.Word, b)
		}
		var text, document bytes.Buffer
		kit.NoError(w, fleet.WriteExplanation(&text, cli.Style{}, facts.Now, &e))
		kit.NoError(w, cli.WriteJSON(&document, cli.JSON, e))
		if cause != "" && (!strings.Contains(text.String(), string(cause)+": "+b.Object) || !strings.Contains(text.String(), "What to do:\n  ") ||
			!strings.Contains(document.String(), fmt.Sprintf(`"cause": %q`, cause))) {
			w.Errorf("the cause %s is not told:\n%s%s", cause, text.String(), document.String())
		}
		return nil
	})
}

// accept creates the ManagedCluster of the first cluster until the end of the test.
func accept(w *world.World) {
	w.Helper()
	clusters := workclient.NewForConfigOrDie(hubPlane.REST()).ClusterV1().ManagedClusters()
	w.Cleanup(func() { _ = clusters.Delete(context.Background(), string(w.Clusters[0]), metav1.DeleteOptions{}) })
	_, err := clusters.Create(w.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(w.Clusters[0])}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
	kit.NoError(w, err)
}

func annotate(w *world.World, name, paused string) {
	w.Helper()
	_, err := w.Works(0).Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, workv1.PausedAnnotationKey, paused), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// createManifest creates a work that reports readiness, with a manifest in the first cluster's namespace for
// objects.
func createManifest(w *world.World, name, manifest string) {
	w.Helper()
	work := w.Work(0, name, "")
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil, manifest, w.Targets[0])}}}
	w.Create(w.Works(0), work)
}

// limited returns a configuration of the first cluster's API for a user who may do everything but write Secrets.
func limited(w *world.World) *rest.Config {
	w.Helper()
	user := kit.Unique("limited")
	roles := kubernetes.NewForConfigOrDie(w.Spokes[0].REST()).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "work.open-cluster-management.io", "apiextensions.k8s.io", "coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io"},
			Resources: []string{"configmaps", "pods", "namespaces", "events", "leases", "appliedmanifestworks", "appliedmanifestworks/status",
				"appliedmanifestworks/finalizers", "customresourcedefinitions"}, Verbs: []string{"*"}},
	}}
	_, err := roles.ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{})
	kit.NoError(w, err)
	_, err = roles.ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}, metav1.CreateOptions{})
	kit.NoError(w, err)
	config := w.Spokes[0].REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}
