// Package preview has agents say what a set would change before they apply it: by dry runs, and held until its time.
package preview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/policy"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/world"
)

// plane is also the cluster of all agents: each has a namespace of its own there, which is named as its cluster.
var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

// shops is a world with a set of the namespace sets: berlin and bonn obey, paris refuses Secrets by the policy of its owner, and rome
// is away once it has had the first template.
type shops struct {
	*world.World
	client    versioned.Interface
	stopRome  func()
	dir, sets string // of files, and the namespace of the set
}

const set = `apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {name: till, namespace: NAMESPACE, annotations: {workwire.dev/preview: Required, workwire.dev/preview-limit: "changed=5,deleted=0"}}
spec:
  placementRefs: [{name: shops}]
  manifestWorkTemplate: {workload: {manifests: MANIFESTS}}
`

// overrides give each cluster its own namespace, name and region.
const overrides = `[{patches: [
  {target: {kind: ConfigMap}, json: [{op: add, path: /metadata/namespace, expression: cluster.name}]},
  {target: {kind: ConfigMap, name: till}, merge: {expression: '{"data": {"shop": cluster.name, "region": cluster.labels.region}}'}}]}]`

func configMap(name, price string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {price: %q}}`, name, price)
}

const keys = `{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: default}, stringData: {key: hunter2}}`

func newShops(t *testing.T) *shops {
	t.Helper()
	w := world.New(t, world.Options{Hub: plane, Spokes: []*controlplane.Plane{plane, plane, plane, plane}, Source: "hub1",
		Clusters: []wire.ClusterName{"berlin", "bonn", "paris", "rome"}, Topics: world.Topics("+")})
	w.StartBroker(broker.Config{})
	s := &shops{World: w, client: w.Client(), dir: t.TempDir(), sets: plane.Namespace(t, "sets")}
	kit.NoError(t, process.Build(t.Context(), filepath.Join("..", ".."), s.dir, "workctl"))
	for _, source := range []wire.SourceID{w.Source, w.Other} {
		kit.NoError(t, os.WriteFile(filepath.Join(s.dir, string(source)+".yaml"), fmt.Appendf(nil, "brokerHost: %s\nusername: %s\npassword: %s\n"+
			"topics: {sourceEvents: sources/%[2]s/clusters/+/sourceevents, agentEvents: sources/%[2]s/clusters/+/agentevents}\n", w.Broker.Addr, source, world.Password), 0o600))
	}
	w.StartHub(func(c *hub.Config) { c.AutoRegister, c.AutoAccept, c.Topics = true, true, world.Topics(w.Source) })
	rules := filepath.Join(s.dir, "policy.yaml")
	kit.NoError(t, os.WriteFile(rules, []byte("deniedResources: [secrets]\n"), 0o600))
	owner, err := policy.Open(policy.Config{File: rules, Logger: kit.Logger(t)})
	kit.NoError(t, err)
	for i := range 4 {
		a := w.StartAgent(i, func(c *agent.Config) {
			c.BrokerHost = string(w.Clusters[i]) // AppliedManifestWorks are named by it
			c.AboutInterval = time.Hour          // they say that they can hold a template
			if w.Clusters[i] == "paris" {
				c.Policy = owner
			}
		})
		if w.Clusters[i] == "rome" {
			s.stopRome = a.Stop
		}
	}
	s.selectAll()
	return s
}

// selectAll has a placement select the four clusters.
func (s *shops) selectAll() {
	s.Helper()
	ctx, create := s.Context(), metav1.CreateOptions{}
	_, err := s.client.ClusterV1beta2().ManagedClusterSetBindings(s.sets).Create(ctx, &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "global"}, Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "global"}}, create)
	kit.NoError(s, err)
	_, err = s.client.ClusterV1beta1().Placements(s.sets).Create(ctx, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}, create)
	kit.NoError(s, err)
	for cluster, region := range map[string]string{"berlin": "north", "bonn": "west", "paris": "west", "rome": "south"} {
		kit.Eventually(s, cluster+" is labelled", func() error {
			_, err := s.client.ClusterV1().ManagedClusters().Patch(ctx, cluster, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"region":%q}}}`, region), metav1.PatchOptions{})
			return err
		})
	}
	kit.Eventually(s, "all are selected", func() error {
		placement, err := s.client.ClusterV1beta1().Placements(s.sets).Get(ctx, "shops", metav1.GetOptions{})
		if err == nil && placement.Status.NumberOfSelectedClusters != 4 {
			err = fmt.Errorf("%+v", placement.Status)
		}
		return err
	})
	s.override("values", overrides)
}

func (s *shops) override(name, rules string) {
	s.Helper()
	o := &workwirev1alpha1.WorkOverride{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: workwirev1alpha1.WorkOverrideSpec{ReplicaSet: "till"}}
	kit.NoError(s, yaml.Unmarshal([]byte(rules), &o.Spec.Rules))
	_, err := s.client.WorkwireV1alpha1().WorkOverrides(s.sets).Create(s.Context(), o, metav1.CreateOptions{})
	kit.NoError(s, err)
}

// apply gives the set a template, and returns its file.
func (s *shops) apply(manifests ...string) (file string) {
	s.Helper()
	text := strings.NewReplacer("NAMESPACE", s.sets, "MANIFESTS", "["+strings.Join(manifests, ", ")+"]").Replace(set)
	file = filepath.Join(s.dir, "set.yaml")
	kit.NoError(s, os.WriteFile(file, []byte(text), 0o600))
	wanted := &workv1alpha1.ManifestWorkReplicaSet{}
	kit.NoError(s, yaml.Unmarshal([]byte(text), wanted))
	client := s.client.WorkV1alpha1().ManifestWorkReplicaSets(s.sets)
	kit.Eventually(s, "the set has the template", func() error {
		stored, err := client.Get(s.Context(), "till", metav1.GetOptions{})
		if err != nil {
			_, err = client.Create(s.Context(), wanted, metav1.CreateOptions{})
			return err
		}
		stored.Spec = wanted.Spec
		_, err = client.Update(s.Context(), stored, metav1.UpdateOptions{})
		return err
	})
	return file
}

// annotate sets an annotation of the set; nil removes it.
func (s *shops) annotate(key string, value any) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	kit.NoError(s, err)
	_, err = s.client.WorkV1alpha1().ManifestWorkReplicaSets(s.sets).Patch(s.Context(), "till", types.MergePatchType, patch, metav1.PatchOptions{})
	kit.NoError(s, err)
}

// diff runs workctl diff set.
func (s *shops) diff(code int, args ...string) string {
	s.Helper()
	return s.workctl(code, append([]string{"diff", "set"}, args...)...)
}

// workctl runs a command in the namespace of the set, checks its exit code, and returns its output.
func (s *shops) workctl(code int, args ...string) string {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.dir, "workctl"), append(args, "-n", s.sets)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig, "WORKCTL_TRANSPORT=hub1.yaml")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := strings.ReplaceAll(out.String(), s.sets, "default")
	s.Logf("$ workctl %s\n%s", strings.Join(args, " "), text)
	if exited, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exited.ExitCode() != code) || err == nil && code != 0 {
		s.Errorf("%v: %v, want exit code %d", args, err, code)
	}
	return text
}

// shows checks that a text has others, in this order.
func (s *shops) shows(text string, wants ...string) {
	s.Helper()
	for rest := text; len(wants) > 0; wants = wants[1:] {
		_, after, found := strings.Cut(rest, wants[0])
		if !found {
			s.Errorf("no %q, or not there, in\n%s", wants[0], text)
			return
		}
		rest = after
	}
}

// printed checks that a page shows the output of a command, up to a text in it.
func (s *shops) printed(page, output, end string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	kit.NoError(s, err)
	shown, _, _ := strings.Cut(output, end)
	if !strings.Contains(strings.ReplaceAll(string(text), "\n    ", "\n"), shown+end) {
		s.Errorf("docs/%s does not show\n%s", page, shown+end)
	}
}

// waits waits until the set says why it waits, with these words.
func (s *shops) waits(want string) {
	s.Helper()
	kit.Eventually(s, "the set waits: "+want, func() error {
		stored, err := s.client.WorkV1alpha1().ManifestWorkReplicaSets(s.sets).Get(s.Context(), "till", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(stored.Status.Conditions, workv1alpha1.ManifestWorkReplicaSetConditionProgressing)
		if c == nil || !strings.Contains(c.Reason+" "+c.Message, want) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// have waits until clusters have a price in their ConfigMap.
func (s *shops) have(price string, clusters ...string) {
	s.Helper()
	for _, cluster := range clusters {
		kit.Eventually(s, cluster+" has the price "+price, func() error {
			held, err := s.price(cluster)
			if err == nil && held != price {
				err = fmt.Errorf("it is %s", held)
			}
			return err
		})
	}
}

// ends deletes the set, and waits until the clusters have nothing of it: the next test has clusters of the same names.
func (s *shops) ends(clusters ...string) {
	s.Helper()
	kit.NoError(s, s.client.WorkV1alpha1().ManifestWorkReplicaSets(s.sets).Delete(s.Context(), "till", metav1.DeleteOptions{}))
	for _, cluster := range clusters {
		kit.Eventually(s, cluster+" has nothing of the set", func() error {
			if held, err := s.price(cluster); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the price is %s: %w", held, err)
			}
			return nil
		})
	}
}

// price returns the price that a cluster has in its ConfigMap.
func (s *shops) price(cluster string) (string, error) {
	found, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().ConfigMaps(cluster).Get(s.Context(), "till", metav1.GetOptions{})
	if err == nil && found.Data["shop"] != cluster {
		err = fmt.Errorf("%v", found.Data)
	}
	if err != nil {
		return "", err
	}
	return found.Data["price"], nil
}

// romeIsAway stops the agent of rome, and waits until the hub says so.
func (s *shops) romeIsAway() {
	s.Helper()
	s.stopRome()
	kit.Eventually(s, "rome is away", func() error {
		rome, err := s.client.ClusterV1().ManagedClusters().Get(s.Context(), "rome", metav1.GetOptions{})
		if err == nil && meta.IsStatusConditionTrue(rome.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
			err = errors.New("it is there")
		}
		return err
	})
}

// TestPreview: what a preview shows, what it lets pass, and what it holds.
func TestPreview(t *testing.T) {
	s := newShops(t)
	file := filepath.Base(s.apply(configMap("till", "1"), configMap("old", "1")))

	// A new set: each cluster gets its own values, of which two share a region.
	s.waits("WaitsForPreview revision 1: 0 of 4 clusters succeeded; waits for its preview: workctl diff set till -n " + s.sets + " --record")
	s.printed("preview.md", s.workctl(0, "rollout", "status", "till", "--watch=false"), "--record")
	out := s.diff(4, "till")
	s.shows(out, "4 clusters: berlin, bonn, paris, rome\n", "+ v1 ConfigMap {cluster}/till  would be created", "+ v1 ConfigMap {cluster}/old  would be created",
		"\nset default/till, revision 1: of 4 clusters 4 were asked and 4 have answered, 0 are away; 0 refuse something; on one cluster at most 2 objects would be changed and 0 deleted\n"+
			"Recorded with --record, it lets the rollout go on.\n")
	s.shows(s.diff(0, "till", "--record"), "revision 1: of 4")
	s.have("1", "berlin", "bonn", "paris", "rome")
	s.diff(0, "till")

	// Another source asks about works that nobody has of it.
	s.shows(s.diff(1, "till", "--transport="+string(s.Other)+".yaml"), "4 clusters", "the agent holds no work till-", " of the source other-", "is this the hub's transport configuration?")

	// One is away, one refuses, and an object goes. The file shows it before it is applied.
	s.romeIsAway()
	price := configMap("till", "3")
	text, err := os.ReadFile(filepath.Join(s.dir, file))
	kit.NoError(t, err)
	next := strings.NewReplacer(configMap("till", "1"), price, configMap("old", "1"), keys).Replace(string(text))
	kit.NoError(t, os.WriteFile(filepath.Join(s.dir, "next.yaml"), []byte(next), 0o600))
	out = s.diff(4, "-f=next.yaml")
	s.shows(out, "2 clusters: berlin, bonn\n", "- v1 ConfigMap {cluster}/old  would be deleted", "~ v1 ConfigMap {cluster}/till", "+ v1 Secret default/keys  would be created",
		"1 cluster: paris\n", "- v1 ConfigMap paris/old  would be deleted", "✗ v1 Secret default/keys  denied", "refused by the policy of the cluster's owner",
		"1 cluster: rome  away\n", "of 4 clusters 3 were asked and 3 have answered, 1 is away; 1 refuses something; on one cluster at most 2 objects would be changed and 1 deleted")
	s.diff(2, "-f=next.yaml", "--record")
	s.apply(price, keys)
	s.waits("revision 2: 0 of 4 clusters succeeded; waits for its preview, the one of ")
	out = s.diff(4, "till")
	s.printed("preview.md", out, "and 1 deleted\n")
	s.shows(out, "Recorded with --record, it would hold the rollout: the preview of")
	s.shows(s.diff(4, "till", "--record"), "the preview is recorded, and holds set default/till", "1 of 3 clusters refuse it: mend that, and preview again")
	s.waits("1 of 3 clusters refuse it")
	s.annotate(workwirev1alpha1.ApprovalsAnnotationKey, `[{"revision":2,"stage":"preview","time":null}]`) // approves no refusal
	s.diff(4, "till", "--record")

	// Without the refusal it deletes more than the rule allows, and is approved.
	s.apply(price)
	s.waits("revision 3: ")
	s.printed("workctl.md", s.diff(4, "till"), "and 1 deleted\n")
	s.shows(s.diff(4, "till", "--record"), "changes at most 1 objects of a cluster and deletes 1, more than changed=5,deleted=0: approve it: workctl rollout approve till -n default --stage=preview --to-revision=3")
	s.waits("deletes 1, more than changed=5,deleted=0")
	s.have("1", "berlin", "bonn", "paris")
	s.annotate(workwirev1alpha1.ApprovalsAnnotationKey, `[{"revision":3,"stage":"preview","time":null}]`)
	s.have("3", "berlin", "bonn", "paris")

	// What keeps the rule needs nobody. Values of regions differ, and groups too; a sample is enough.
	s.apply(configMap("till", "4"))
	s.waits("is of another template")
	s.override("more", `[{patches: [{target: {kind: ConfigMap, name: till}, json: [{op: add, path: /data/of, expression: cluster.labels.region}]}]}]`)
	s.shows(s.diff(4, "till", "--clusters=berlin,paris"), "1 cluster: berlin", `data.of: + "north"`, `data.price: "3" → "4"`, "1 cluster: paris", `data.of: + "west"`, "2 were asked and 2 have answered")
	s.shows(s.diff(0, "till", "--sample=2", "--record"), "of 4 clusters 2 were asked and 2 have answered, 1 is away; 0 refuse something; on one cluster at most 1 object would be changed and 0 deleted")
	s.have("4", "berlin", "bonn", "paris")

	// A changed override is not what was previewed.
	s.override("most", `[{patches: [{target: {kind: ConfigMap, name: till}, json: [{op: replace, path: /data/price, value: "5"}]}]}]`)
	s.waits("is of other WorkOverrides")
	s.have("4", "berlin", "bonn", "paris")
	s.shows(s.diff(0, "till", "--record", "-o=json"), `"clusters": [`, `"state": "Answered"`, `"groups": [`, `"held": ""`, `"answered": 3`)
	s.have("5", "berlin", "bonn", "paris")
	if out := s.diff(2, "till", "--clusters=oslo"); !strings.Contains(out, `no placement of the set selects the cluster "oslo"`) {
		t.Error(out)
	}
}
