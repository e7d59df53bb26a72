// Package rollout runs a rollout with all that it needs: a hub, a broker, and two agents, each on an
// API server of its own with a scheduler and nodes.
package rollout

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/examples"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/hub/revisions"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

var hubPlane, canaryPlane *controlplane.Plane

func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Planes{Hub: &hubPlane, Spoke: &canaryPlane})
}

const setsNS = "ocm-ns" // of the example

// canary is a world with the clusters a-first, which is the canary by its label, and b-second.
type canary struct {
	*world.World
	client versioned.Interface
	planes map[string]*controlplane.Plane
	page   func(path string) (string, error) // of the dashboard
}

func startCanary(t *testing.T) *canary {
	t.Helper()
	second := controlplane.StartFor(t, controlplane.Spoke)
	kit.NoError(t, install.CRDs(t.Context(), second.REST(), crds.Spoke()...))
	w := world.New(t, world.Options{Spokes: []*controlplane.Plane{canaryPlane, second}, Clusters: []wire.ClusterName{"a-first", "b-second"}})
	w.Hub = hubPlane // from here on: the hub makes the namespaces
	w.StartBroker(broker.Config{})
	h := w.StartHub(func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	page := w.StartDashboard(h)
	w.StartAgent(0)
	w.StartAgent(1)
	return &canary{World: w, client: w.Client(), planes: map[string]*controlplane.Plane{"a-first": canaryPlane, "b-second": second}, page: page}
}

// shows waits until the page of the set has these texts.
func (w *canary) shows(texts ...string) {
	w.Helper()
	kit.Eventually(w, "the page of the set", func() error {
		page, err := w.page("/replicasets/" + setsNS + "/web")
		for _, text := range texts {
			if err == nil && !strings.Contains(page, text) {
				err = fmt.Errorf("there is no %q in %s", text, page)
			}
		}
		return err
	})
}

// label labels a cluster once the hub has registered it.
func (w *canary) label(cluster, stage string) {
	w.Helper()
	kit.Eventually(w, cluster+" is labelled", func() error {
		_, err := w.client.ClusterV1().ManagedClusters().Patch(w.Context(), cluster, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, stage), metav1.PatchOptions{})
		return err
	})
}

func example[T any](t testing.TB, name string) *T {
	t.Helper()
	text, err := examples.Files.ReadFile("replicaset/" + name + ".yaml")
	kit.NoError(t, err)
	object := new(T)
	kit.NoError(t, yaml.UnmarshalStrict(text, object))
	return object
}

// apply applies the three examples of the recipe.
func (w *canary) apply() {
	w.Helper()
	ctx, create := w.Context(), metav1.CreateOptions{}
	hubPlane.CreateNamespace(w, setsNS)
	_, err := w.client.ClusterV1beta2().ManagedClusterSetBindings(setsNS).Create(ctx, example[clusterv1beta2.ManagedClusterSetBinding](w, "cluster-set-binding"), create)
	kit.NoError(w, err)
	_, err = w.client.ClusterV1beta1().Placements(setsNS).Create(ctx, example[clusterv1beta1.Placement](w, "canary-placement"), create)
	kit.NoError(w, err)
	kit.Eventually(w, "both clusters are selected", func() error {
		placement, err := w.client.ClusterV1beta1().Placements(setsNS).Get(ctx, "canary", metav1.GetOptions{})
		if err == nil && (placement.Status.NumberOfSelectedClusters != 2 || len(placement.Status.DecisionGroups) != 2) {
			err = fmt.Errorf("%+v", placement.Status)
		}
		return err
	})
	set := example[workv1alpha1.ManifestWorkReplicaSet](w, "canary-mwrset")
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime.Duration = time.Second // for a short test
	_, err = w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNS).Create(ctx, set, create)
	kit.NoError(w, err)
}

// edit changes the image and the nodeSelector of the set's Deployment, and the deadline of its rollout.
func (w *canary) edit(deadline, image string, nodeSelector map[string]any) {
	w.Helper()
	sets := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNS)
	kit.Eventually(w, "edit the set", func() error {
		set, err := sets.Get(w.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.ProgressDeadline = deadline
		manifest := &set.Spec.ManifestWorkTemplate.Workload.Manifests[0]
		deployment := map[string]any{}
		kit.NoError(w, yaml.Unmarshal(manifest.Raw, &deployment))
		pod := deployment["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		pod["containers"].([]any)[0].(map[string]any)["image"] = image
		delete(pod, "nodeSelector")
		if nodeSelector != nil {
			pod["nodeSelector"] = nodeSelector
		}
		manifest.Raw, err = json.Marshal(deployment)
		kit.NoError(w, err)
		_, err = sets.Update(w.Context(), set, metav1.UpdateOptions{})
		return err
	})
}

// until waits until a condition of the set has this reason and a message that matches.
func (w *canary) until(kind, reason, message string) {
	w.Helper()
	matches := regexp.MustCompile(message)
	kit.Eventually(w, kind+" is "+reason, func() error {
		set, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNS).Get(w.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(set.Status.Conditions, kind)
		if c == nil || c.Reason != reason || !matches.MatchString(c.Message) || c.ObservedGeneration != 0 && c.ObservedGeneration != set.Generation {
			return fmt.Errorf("generation %d has %+v", set.Generation, set.Status.Conditions)
		}
		return nil
	})
}

func (w *canary) deployment(cluster string) (*appsv1.Deployment, error) {
	return kubernetes.NewForConfigOrDie(w.planes[cluster].REST()).AppsV1().Deployments("default").Get(w.Context(), "web", metav1.GetOptions{})
}

// runs waits until a cluster runs this image, on a pod that is ready.
func (w *canary) runs(cluster, image string) {
	w.Helper()
	kit.Eventually(w, cluster+" runs "+image, func() error {
		d, err := w.deployment(cluster)
		if err == nil && (d.Spec.Template.Spec.Containers[0].Image != image || d.Status.ReadyReplicas != 1 || d.Status.ObservedGeneration != d.Generation) {
			err = fmt.Errorf("%+v, %+v", d.Spec.Template.Spec, d.Status)
		}
		return err
	})
}

// TestCanary follows the recipe: a change whose pod cannot be scheduled stops at the canary, and the
// set names cluster, object and reason. Its fix reaches all clusters, and can be undone.
func TestCanary(t *testing.T) {
	const (
		progressing, stopped, rolledOut = workv1alpha1.ManifestWorkReplicaSetConditionProgressing,
			workv1alpha1.ManifestWorkReplicaSetConditionStopped, workv1alpha1.ManifestWorkReplicaSetConditionPlacementRolledOut
		blocker = `a-first: Deployment default/web: Available: 0/1: Pod web-\S+: Unschedulable: 0/\d+ nodes are available: .*`
	)
	nowhere := map[string]any{"disk": "fast"}
	w := startCanary(t)
	w.label("a-first", "canary")
	w.label("b-second", "prod")
	w.apply()
	w.until(rolledOut, "Complete", "^$")
	w.until(progressing, "Complete", "^revision 1: 2 of 2 clusters succeeded$")
	w.runs("a-first", "nginx:1.27")
	w.runs("b-second", "nginx:1.27")
	w.healthy("Current Healthy")
	w.worksHealthy(map[string]string{"a-first": "Current Healthy", "b-second": "Current Healthy"})

	// No node has the label. The rollout waits for the canary.
	w.edit("10m", "nginx:1.27", nowhere)
	w.until(progressing, "RollingOut", "^revision 2: 0 of 2 clusters succeeded, 1 have the template; waiting for "+blocker+"$")
	w.until(rolledOut, "Progressing", "^waiting for "+blocker+"$")
	w.healthy("InProgress Progressing")
	w.worksHealthy(map[string]string{"a-first": "InProgress Progressing", "b-second": "Current Healthy"})

	// When its time is over, it stops.
	w.edit("1s", "nginx:1.27", nowhere)
	w.until(progressing, "Stopped", "^revision 2: 0 of 2 clusters succeeded, 1 have the template; "+
		"stopped: 1 cluster failed or timed out, more than allowed: a-first; waiting for "+blocker+"$")
	w.until(stopped, "TooManyFailures", "a-first; waiting for "+blocker+"$")
	w.healthy("Failed Degraded")
	if d, err := w.deployment("b-second"); err != nil || d.Spec.Template.Spec.NodeSelector != nil || d.Status.ReadyReplicas != 1 {
		t.Errorf("the other cluster has %+v %v", d, err)
	}

	// The fix goes on to all.
	w.edit("10m", "nginx:1.28", nil)
	w.until(progressing, "Complete", "^revision 3: 2 of 2 clusters succeeded$")
	w.until(stopped, "AsExpected", "^$")
	w.runs("a-first", "nginx:1.28")
	w.runs("b-second", "nginx:1.28")
	w.healthy("Current Healthy")
	w.stalledWork("a-first")

	undone, err := revisions.Undo(t.Context(), w.client, setsNS, "web", 1)
	kit.NoError(t, err)
	if undone != (revisions.Undone{From: 3, To: 1}) {
		t.Errorf("undone: %+v", undone)
	}
	w.until(progressing, "Complete", "^revision 4: 2 of 2 clusters succeeded$")
	w.shows(`<span class="state s-ready">ready</span>`, "<dd>2 clusters</dd>", "<td>Progressive</td>", "2 of 2")
	w.runs("b-second", "nginx:1.27")
}

// TestRecipe: the page shows the examples that TestCanary applies.
func TestRecipe(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	kit.NoError(t, err)
	for _, name := range []string{"canary-placement", "canary-mwrset"} {
		text, err := examples.Files.ReadFile("replicaset/" + name + ".yaml")
		kit.NoError(t, err)
		if !strings.Contains(string(page), string(text)) {
			t.Errorf("docs/recipes.md does not show %s", name)
		}
	}
}
