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
)

// TestExplain checks that workctl explain tells the causes apart that a real hub, broker, agent and API
// server produce, one after another.
func TestExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broker = startBroker(t, w.users)
	works := w.works(0)
	w.accept()
	w.hub()

	w.create(works, w.work(0, "web", "1", "a"))
	w.blocked("web", workstate.AgentOff, "ManagedCluster "+string(w.clusters[0]))

	w.agent(0, topicsOf(string(w.source)), func(c *agent.Config) { c.Kube = w.limited() })
	w.applied(works, "web")
	w.blocked("web", "", "")

	w.annotate("web", `"true"`)
	w.update(works, w.work(0, "web", "2", "a"))
	w.blocked("web", workstate.Paused, "workctl resume work web -n "+string(w.clusters[0]))
	w.annotate("web", "null")
	w.applied(works, "web")
	w.blocked("web", "", "")

	w.createManifest("secret", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":%q}}`)
	w.blocked("secret", workstate.Forbidden, "Secret "+w.targets[0]+"/s")

	w.createManifest("pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":%q},
		"spec":{"nodeSelector":{"no":"node"},"containers":[{"name":"app","image":"app"}]}}`)
	w.blocked("pod", workstate.Unschedulable, "Pod "+w.targets[0]+"/p")

	w.createManifest("held", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","namespace":%q,"finalizers":["example.com/hold"]}}`)
	w.applied(works, "held")
	w.delete(works, "held")
	w.blocked("held", workstate.Finalizer, "ConfigMap "+w.targets[0]+"/held waits for its finalizers example.com/hold")
	_, err := kubernetes.NewForConfigOrDie(w.plane(0).REST()).CoreV1().ConfigMaps(w.targets[0]).Patch(t.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	kit.NoError(t, err)
	w.gone(works, "held")
	w.refused()

	w.broker.Stop()
	w.update(works, w.work(0, "web", "3", "a"))
	w.blocked("web", workstate.BrokerOff, "start the broker")
}

// blocked waits until a work of the first cluster has a blocker with this cause and text; "" means none.
// Both outputs of workctl explain must tell it.
func (w *world) blocked(name string, cause workstate.Cause, want string) {
	w.Helper()
	w.blockedLater(0, name, cause, want)
}

// blockedLater is like blocked for somebody who looks later.
func (w *world) blockedLater(later time.Duration, name string, cause workstate.Cause, want string) {
	w.Helper()
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(w, err)
	kit.Eventually(w, fmt.Sprintf("work %s is blocked by %q", name, cause), func() error {
		facts, err := reader.Facts(w.Context(), string(w.clusters[0]), name)
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
			return fmt.Errorf("%s: %+v", e.State, b)
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
func (w *world) accept() {
	w.Helper()
	clusters := workclient.NewForConfigOrDie(hubPlane.REST()).ClusterV1().ManagedClusters()
	w.Cleanup(func() { _ = clusters.Delete(context.Background(), string(w.clusters[0]), metav1.DeleteOptions{}) })
	_, err := clusters.Create(w.Context(), &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: string(w.clusters[0])}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{})
	kit.NoError(w, err)
}

func (w *world) annotate(name, paused string) {
	w.Helper()
	_, err := w.works(0).Patch(w.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, workv1.PausedAnnotationKey, paused), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// createManifest creates a work that reports readiness, with a manifest in the first cluster's namespace for
// objects.
func (w *world) createManifest(name, manifest string) {
	w.Helper()
	work := w.work(0, name, "")
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil, manifest, w.targets[0])}}}
	w.create(w.works(0), work)
}

// limited returns a configuration of the first cluster's API for a user who may do everything but write Secrets.
func (w *world) limited() *rest.Config {
	w.Helper()
	user := kit.Unique("limited")
	roles := kubernetes.NewForConfigOrDie(w.plane(0).REST()).RbacV1()
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
	config := w.plane(0).REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}
