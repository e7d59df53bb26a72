package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit/process"
)

const (
	setsNamespace = "ocm-ns" // of examples/replicaset
	setName       = "web"
	poll          = 200 * time.Millisecond
	// What the walk changes of the example, so that it takes a minute and not half an hour.
	walkSoak     = 3 * time.Second
	walkDeadline = "15s" // of the canary that fails
	longDeadline = "10m" // of the others
	nextImage    = "nginx:1.28"
	differs      = 4 // the exit code of workctl diff
)

// noNode selects no node.
var noNode = map[string]any{"disk": "fast"}

// walker is a walk through a rollout.
type walker struct {
	*stage
	client workclient.Interface
	agents map[string]*process.Process // of the clusters of the walk but the first
	said   string                      // the last message of the rollout
}

// walk adds two clusters and shows a rollout: values of each cluster, a preview, stages, of which one fails and goes back by itself, its
// fix, which somebody approves, and a cluster that is off meanwhile. Each step waits for as long as s.Timeout.
func (s *stage) walk(ctx context.Context) error {
	client, err := workclient.NewForConfig(s.hub)
	if err != nil {
		return err
	}
	w := &walker{stage: s, client: client, agents: map[string]*process.Process{}}
	hub := s.kubectl("hub")
	for _, step := range []struct {
		title string
		run   func(context.Context) error
		look  []string
	}{
		{"two clusters more (1 GB of memory), with labels: cluster1 is the canary", w.addClusters, []string{hub + " get managedclusters --show-labels"}},
		{"one Deployment for all: examples/replicaset/canary-*.yaml", w.create, []string{hub + " -n ocm-ns get manifestworkreplicaset web"}},
		{"values of each cluster: examples/replicaset/canary-override.yaml", w.override, []string{s.kubectl("cluster2") + " get deployment web --show-labels"}},
		{"what a change would do, asked of all clusters before it is made", w.preview, nil},
		{"stages: the canary, and production once somebody has approved it: examples/replicaset/canary-plan.yaml", w.plan, []string{hub + " -n ocm-ns get rolloutplans"}},
		{"made, it fits on no node: it stops at the stage canary, which goes back", w.fail, []string{
			hub + " -n ocm-ns describe manifestworkreplicaset web", s.kubectl("spoke") + " get deployments,pods -l app=web",
		}},
		{"its fix, and when the canary is well, somebody approves production", w.fix, []string{hub + " -n ocm-ns get manifestworkreplicasetrevisions --sort-by=.revision"}},
		{"cluster3 is off: the others do not wait for it", w.off, []string{hub + " get managedclusters", hub + " -n cluster3 get manifestworks"}},
		{"cluster3 is back", w.back, []string{s.kubectl("cluster3") + " get deployment web -o wide"}},
	} {
		fmt.Fprintf(s.Out, "\n== %s\n", step.title)
		w.said = "" // each step says how it ends, also if nothing has changed by then
		bounded, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("not done within %v", s.Timeout))
		err := step.run(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w; the logs are in %s", step.title, err, s.Dir)
		}
		for _, command := range step.look {
			fmt.Fprintf(s.Out, "        look: %s\n", command)
		}
	}
	return nil
}

// addClusters starts the other clusters and labels all.
func (w *walker) addClusters(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, cluster := range clusters[1:] {
		group.Go(func() error { return w.startSpoke(groupCtx, cluster.dir) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, cluster := range clusters {
		if i > 0 {
			agent, err := w.join(ctx, "agent-"+cluster.name, cluster.name, cluster.dir)
			if err != nil {
				return err
			}
			w.agents[cluster.name] = agent
		}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, cluster.stage)
		err := w.until(ctx, func() (bool, string) {
			_, err := w.client.ClusterV1().ManagedClusters().Patch(ctx, cluster.name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err == nil, fmt.Sprint(err)
		})
		if err != nil {
			return err
		}
		if err := w.awaitPresence(ctx, cluster.name, true); err != nil {
			return err
		}
		w.say("%s is connected, stage=%s", cluster.name, cluster.stage)
	}
	return nil
}

// awaitPresence waits until the hub knows whether a cluster is connected.
func (w *walker) awaitPresence(ctx context.Context, name string, connected bool) error {
	return w.until(ctx, func() (bool, string) {
		cluster, err := w.client.ClusterV1().ManagedClusters().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) == connected, name + " has not been heard of"
	})
}

// create applies the example, and waits until it has reached all clusters.
func (w *walker) create(ctx context.Context) error {
	if _, err := w.atHub(ctx, "", "create", "namespace", setsNamespace); err != nil {
		return err
	}
	for _, file := range []string{"cluster-set-binding", "canary-placement"} {
		if err := w.applyExample(ctx, "replicaset/"+file+".yaml"); err != nil {
			return err
		}
	}
	const file = "replicaset/canary-mwrset.yaml"
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	text, err := examples.Files.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, set)
	}
	if err != nil {
		return fmt.Errorf("read examples/%s: %w", file, err)
	}
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.MinSuccessTime.Duration = walkSoak
	set.Annotations = map[string]string{workv1alpha1.OnFailureAnnotationKey: workv1alpha1.OnFailureRollback}
	if _, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNamespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("apply the set: %w", err)
	}
	return w.rollout(ctx, workv1alpha1.ReasonComplete, "3 of 3 clusters succeeded")
}

// override applies the example's WorkOverride, and waits until each cluster has its own value.
func (w *walker) override(ctx context.Context) error {
	if err := w.applyExample(ctx, "replicaset/canary-override.yaml"); err != nil {
		return err
	}
	for _, cluster := range clusters {
		value := fmt.Sprintf(`"cluster":%q`, cluster.name)
		err := w.until(ctx, func() (bool, string) {
			works, err := w.client.WorkV1().ManifestWorks(cluster.name).List(ctx, metav1.ListOptions{LabelSelector: workv1.ReplicaSetLabelKey})
			if err != nil || len(works.Items) != 1 {
				return false, fmt.Sprintf("the works of %s: %v", cluster.name, err)
			}
			work := &works.Items[0]
			c := workstate.Current(work, workv1.WorkAvailable)
			has := strings.Contains(string(work.Spec.Workload.Manifests[0].Raw), value)
			return has && c != nil && c.Status == metav1.ConditionTrue, cluster.name + " does not have its value yet"
		})
		if err != nil {
			return err
		}
		w.say("%s has the label cluster=%[1]s on its Deployment", cluster.name)
	}
	if err := w.rollout(ctx, workv1alpha1.ReasonComplete, "3 of 3 clusters succeeded"); err != nil {
		return err
	}
	// Only a template that has succeeded everywhere for minSuccessTime is one to go back to.
	return w.until(ctx, func() (bool, string) {
		set, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNamespace).Get(ctx, setName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return set.Annotations[workwirev1alpha1.ProvenRevisionAnnotationKey] == "1", "revision 1 has not proven itself yet"
	})
}

// preview asks all clusters what the change would do that fails next.
func (w *walker) preview(ctx context.Context) error {
	set, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNamespace).Get(ctx, setName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := change(set, walkDeadline, nextImage, noNode); err != nil {
		return err
	}
	set.TypeMeta = metav1.TypeMeta{APIVersion: workv1alpha1.GroupVersion.String(), Kind: "ManifestWorkReplicaSet"}
	set.ManagedFields, set.Status = nil, workv1alpha1.ManifestWorkReplicaSetStatus{}
	text, err := yaml.Marshal(set)
	if err != nil {
		return err
	}
	file := w.path("change.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	command := []string{"diff", "set", "-f", file, "-n", setsNamespace, "--transport=" + w.transport(sourceID), "--kubeconfig=" + w.path("hub/kubeconfig")}
	w.say("workctl diff set -f %s -n %s --transport=%s", w.relative(file), setsNamespace, w.relative(w.transport(sourceID)))
	out, err := w.output(ctx, "", "workctl", command...)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != differs) {
		return err
	}
	w.show(out)
	return nil
}

// show prints what a program has printed.
func (w *walker) show(text string) {
	w.printing.Lock()
	defer w.printing.Unlock()
	for line := range strings.Lines(text) {
		fmt.Fprint(w.Out, "        ", line)
	}
}

// plan applies the example's RolloutPlan, and names it on the set.
func (w *walker) plan(ctx context.Context) error {
	if err := w.applyExample(ctx, "replicaset/canary-plan.yaml"); err != nil {
		return err
	}
	const named = workv1alpha1.RolloutPlanAnnotationKey + "=careful" // by the example
	if _, err := w.atHub(ctx, "", "annotate", "manifestworkreplicaset", setName, "-n", setsNamespace, named); err != nil {
		return fmt.Errorf("name the plan on the set: %w", err)
	}
	w.say("%s", named)
	return nil
}

// approve waits until the rollout waits for somebody who approves production, shows the stages, and does it.
func (w *walker) approve(ctx context.Context, why string) error {
	if err := w.rollout(ctx, workv1alpha1.ReasonWaitsForApproval, ""); err != nil {
		return err
	}
	for _, command := range []struct{ verb, flag, shown string }{{"status", "--watch=false", "--watch=false"}, {"approve", "--reason=" + why, "--reason='" + why + "'"}} {
		out, err := w.output(ctx, "", "workctl", "rollout", command.verb, setName, "-n", setsNamespace, "--kubeconfig="+w.path("hub/kubeconfig"), command.flag)
		if err != nil {
			return err
		}
		w.say("workctl rollout %s %s -n %s %s", command.verb, setName, setsNamespace, command.shown)
		w.show(out)
	}
	return nil
}

func (w *walker) fail(ctx context.Context) error {
	if err := w.edit(ctx, walkDeadline, nextImage, noNode); err != nil {
		return err
	}
	return w.rollout(ctx, workv1alpha1.ReasonRolledBack, "3 of 3 clusters succeeded")
}

func (w *walker) fix(ctx context.Context) error {
	if err := w.edit(ctx, longDeadline, nextImage, nil); err != nil {
		return err
	}
	if err := w.approve(ctx, "the canary is well"); err != nil {
		return err
	}
	return w.rollout(ctx, workv1alpha1.ReasonComplete, "3 of 3 clusters succeeded")
}

func (w *walker) off(ctx context.Context) error {
	if err := w.stop(w.agents["cluster3"]); err != nil {
		return err
	}
	w.say("stopped the agent of cluster3")
	if err := w.awaitPresence(ctx, "cluster3", false); err != nil {
		return err
	}
	w.say("the hub knows: cluster3 is not available")
	if err := w.edit(ctx, longDeadline, "nginx:1.29", nil); err != nil {
		return err
	}
	if err := w.approve(ctx, "two of three will do"); err != nil {
		return err
	}
	return w.rollout(ctx, workv1alpha1.ReasonRollingOut, "2 of 3 clusters succeeded")
}

func (w *walker) back(ctx context.Context) (err error) {
	if w.agents["cluster3"], err = w.startAgent("agent-cluster3", "cluster3", "cluster3"); err != nil {
		return err
	}
	return w.rollout(ctx, workv1alpha1.ReasonComplete, "3 of 3 clusters succeeded")
}

// edit changes the image and the nodeSelector of the set's Deployment, and the deadline of its rollout.
func (w *walker) edit(ctx context.Context, deadline, image string, nodeSelector map[string]any) error {
	sets := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNamespace)
	return w.until(ctx, func() (bool, string) {
		set, err := sets.Get(ctx, setName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if err := change(set, deadline, image, nodeSelector); err != nil {
			return false, err.Error()
		}
		_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// change gives a set another deadline, image and nodeSelector.
func change(set *workv1alpha1.ManifestWorkReplicaSet, deadline, image string, nodeSelector map[string]any) (err error) {
	set.Spec.PlacementRefs[0].RolloutStrategy.Progressive.ProgressDeadline = deadline
	manifest := &set.Spec.ManifestWorkTemplate.Workload.Manifests[0]
	manifest.Raw, err = editPod(manifest.Raw, image, nodeSelector)
	return err
}

// editPod returns a Deployment with another image and nodeSelector.
func editPod(deployment []byte, image string, nodeSelector map[string]any) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(deployment); err != nil {
		return nil, err
	}
	pod, _, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
	if err != nil {
		return nil, err
	}
	containers, _, err := unstructured.NestedSlice(pod, "containers")
	if err != nil || len(containers) == 0 {
		return nil, fmt.Errorf("the Deployment has no containers: %w", err)
	}
	if container, ok := containers[0].(map[string]any); ok {
		container["image"] = image
	}
	pod["containers"] = containers
	delete(pod, "nodeSelector")
	if nodeSelector != nil {
		pod["nodeSelector"] = nodeSelector
	}
	if err := unstructured.SetNestedMap(object.Object, pod, "spec", "template", "spec"); err != nil {
		return nil, err
	}
	return object.MarshalJSON()
}

// rollout prints the messages of the rollout until it has this reason and a message with text, for
// the newest generation of the set.
func (w *walker) rollout(ctx context.Context, reason, text string) error {
	return w.until(ctx, func() (bool, string) {
		set, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNamespace).Get(ctx, setName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(set.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
		if c == nil || c.ObservedGeneration != set.Generation {
			return false, "the hub has not seen the change"
		}
		if line := c.Reason + ": " + c.Message; line != w.said {
			w.said = line
			w.say("%s", line)
		}
		return c.Reason == reason && strings.Contains(c.Message, text), w.said
	})
}

// until calls done until it returns true, and fails with its text when ctx ends or a program has
// died.
func (w *walker) until(ctx context.Context, done func() (bool, string)) error {
	for {
		ok, text := done()
		if ok {
			return nil
		}
		for _, p := range w.running {
			if err := p.Died(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), text)
		case <-time.After(poll):
		}
	}
}
