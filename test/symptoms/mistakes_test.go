package symptoms

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/world"
)

// mistake is something that the author of a work, or somebody for them, did wrong.
type mistake struct {
	name string
	// prepare makes the cluster as the mistake needs it; after makes it, where the work is not one when it is created.
	prepare, after func(*author)
	// spec is that of the work in YAML, in which %s is a namespace of the cluster.
	spec  string
	cause workstate.Cause
	// says is in the message, which names what is wrong.
	says string
	// away has the work for a cluster that does not exist.
	away bool
}

const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: %s}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'perl:5.34.0'}]}}}}"

func manifests(of ...string) string { return "workload: {manifests: [" + strings.Join(of, ", ") + "]}" }

var mistakes = []mistake{
	{name: "pods that no node can run", spec: manifests(unschedulable), cause: workstate.Unschedulable, says: "nodes are available"},
	{name: "an image that does not exist", spec: manifests(unschedulable), after: (*author).imagePullFails, cause: workstate.ImagePull, says: "ErrImagePull: not found"},
	{name: "a finished Job is changed", after: (*author).changeJob, cause: workstate.Warning, says: "complete", spec: manifests(job) +
		"\nmanifestConfigs: [{resourceIdentifier: {group: batch, resource: jobs, namespace: %s, name: once}, conditionRules: [{condition: Complete, type: WellKnownConditions}]}]"},
	{name: "an unknown field", spec: manifests("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: %s}, dta: {k: '1'}}"), cause: workstate.Warning, says: `unknown field "dta"`},
	{name: "a manifestConfig of nothing", cause: workstate.Warning, says: "no-such", spec: manifests(configMap) +
		"\nmanifestConfigs: [{resourceIdentifier: {resource: configmaps, namespace: %s, name: no-such}, updateStrategy: {type: CreateOnly}}]"},
	{name: "a wrong apiVersion", spec: manifests("{apiVersion: apps/v2, kind: Deployment, metadata: {name: web, namespace: %s}}"), cause: workstate.UnknownKind, says: `"Deployment" in apps/v2`},
	{name: "a resource before its definition", spec: manifests("{apiVersion: example.com/v1, kind: Gadget, metadata: {name: a, namespace: %s}}"), cause: workstate.UnknownKind, says: `"Gadget" in example.com/v1`},
	{name: "a namespace that does not exist", spec: manifests("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}"), cause: workstate.NoNamespace, says: `"nowhere" not found`},
	{name: "a field that somebody else owns", prepare: (*author).otherOwner, cause: workstate.Conflict, says: ".data.k", spec: manifests(configMap) +
		"\nmanifestConfigs: [{resourceIdentifier: {resource: configmaps, namespace: %s, name: a}, updateStrategy: {type: ServerSideApply}}]"},
	{name: "an object that somebody else changes", spec: manifests(configMap), after: (*author).rival, cause: workstate.Flapping, says: "rival"},
	{name: "an executor without rights", spec: manifests(configMap) + "\nexecutor: {subject: {type: ServiceAccount, serviceAccount: {namespace: %s, name: nobody}}}",
		cause: workstate.ExecutorDenied, says: "not allowed to apply the resource"},
	{name: "more than the quota", prepare: (*author).quota, spec: manifests(configMap), cause: workstate.Quota, says: "exceeded quota"},
	{name: "a webhook that refuses", prepare: (*author).webhook, spec: manifests(configMap), cause: workstate.Webhook, says: "not today"},
	{name: "a paused cluster", prepare: (*author).pause, spec: manifests(configMap), cause: workstate.ClusterPaused, says: "paused"},
	{name: "a wrong cluster", spec: manifests(configMap), cause: workstate.ClusterNotFound, says: "no ManagedCluster", away: true},
	{name: "a work that is too large", spec: manifests(strings.Replace(configMap, `"1"`, `"`+strings.Repeat("x", packetLimit)+`"`, 1)), cause: workstate.TooLarge, says: "exceeds the broker's maximum packet size"},
}

// author writes a work for one cluster, with a mistake.
type author struct {
	*patient
	spoke kubernetes.Interface
	made  time.Time // when the mistake was made
}

// TestMistakes makes each mistake and checks that kubectl, workctl status, workctl explain and the dashboard name its cause and
// say what is wrong. Its log is a table of what they say, and after how long.
func TestMistakes(t *testing.T) {
	o := world.Options{Hub: hubPlane, Source: "mistakes"}
	for i := range mistakes {
		o.Spokes, o.Clusters = append(o.Spokes, spokePlane), append(o.Clusters, wire.ClusterName(fmt.Sprint("author", i)))
	}
	w := world.New(t, o)
	w.StartBroker(broker.Config{MaxPacketSize: packetLimit})
	h := w.StartHub(func(c *hub.Config) { c.PendingDelay = 100 * time.Millisecond })
	page := w.StartDashboard(h)
	var mu sync.Mutex
	table := []string{"| mistake | cause | the message | after |", "|---|---|---|---|"}
	t.Run("made", func(t *testing.T) {
		for i, m := range mistakes {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				a := &author{patient: &patient{World: w.On(t), hub: h, i: i, cluster: string(w.Clusters[i]), target: w.Targets[i]},
					spoke: kubernetes.NewForConfigOrDie(spokePlane.REST())}
				a.BrokerHost = a.cluster
				message, after := a.make(m)
				a.told(m, message, page)
				mu.Lock()
				defer mu.Unlock()
				table = append(table, fmt.Sprintf("| %s | %s | %.150s | %.1f s |", m.name, m.cause, message, after.Seconds()))
			})
		}
	})
	t.Log("\n" + strings.Join(table, "\n"))
}

// make makes a mistake. It returns what workctl status says, and after how long kubectl has shown the cause.
func (a *author) make(m mistake) (message string, after time.Duration) {
	a.Helper()
	if !m.away {
		a.accept(true)
		a.agent()
		a.log.Await(a, "connected to the broker")
	}
	if m.prepare != nil {
		m.prepare(a)
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	kit.NoError(a, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(m.spec, "%s", a.target)), &work.Spec))
	a.made = time.Now()
	a.Create(a.Works(a.i), work)
	if m.after != nil {
		m.after(a)
	}
	kit.Eventually(a, "kubectl get shows "+string(m.cause), func() error {
		if cells := a.columns("web"); cells["CAUSE"] != string(m.cause) {
			return fmt.Errorf("it shows %v\n%s", cells, a.conditions("web"))
		}
		return nil
	})
	after = time.Since(a.made)
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(a, err)
	snapshot, _, err := reader.Snapshot(a.Context(), a.cluster)
	kit.NoError(a, err)
	for _, line := range fleet.Summarize(snapshot, 0).WorkProblems {
		if line.Cause == m.cause {
			return line.Message, after
		}
	}
	a.Errorf("workctl status does not name %s: %+v", m.cause, fleet.Summarize(snapshot, 0).WorkProblems)
	return "", after
}

// told checks what people read who look for the cause.
func (a *author) told(m mistake, message string, page func(string) (string, error)) {
	a.Helper()
	shown, err := page("/works/" + a.cluster + "/web")
	kit.NoError(a, err)
	unescape := strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&amp;", "&")
	for what, text := range map[string]string{
		"workctl status": string(m.cause) + message, "workctl explain": a.explain("web"), "the dashboard": unescape.Replace(shown),
	} {
		for _, word := range []string{string(m.cause), m.says} {
			if !strings.Contains(text, word) {
				a.Errorf("%s has no %q:\n%s", what, word, text)
			}
		}
	}
}

// imagePullFails is what a kubelet reports, which simulated nodes do not have. The agent looks at pods when their owner changes.
func (a *author) imagePullFails() {
	pods := a.spoke.CoreV1().Pods(a.target)
	kit.Eventually(a, "the pod has a status", func() error {
		list, err := pods.List(a.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d pods, %w", len(list.Items), err)
		}
		list.Items[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}
		_, err = pods.UpdateStatus(a.Context(), &list.Items[0], metav1.UpdateOptions{})
		return err
	})
	_, err := a.spoke.AppsV1().Deployments(a.target).Patch(a.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":""}}}`), metav1.PatchOptions{})
	kit.NoError(a, err)
}

// changeJob changes the image of the Job once it has finished.
func (a *author) changeJob() {
	kit.Eventually(a, "the Job is finished", func() error {
		if text := a.conditions("web"); !strings.Contains(text, "Complete=True") {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
	a.made = time.Now()
	a.Change(a.Works(a.i), "web", func(work *workv1.ManifestWork) {
		raw := &work.Spec.Workload.Manifests[0].Raw
		*raw = []byte(strings.Replace(string(*raw), "perl:5.34.0", "perl:5.36.0", 1))
	})
}

func (a *author) otherOwner() {
	_, err := a.spoke.CoreV1().ConfigMaps(a.target).Create(a.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "theirs"}},
		metav1.CreateOptions{FieldManager: "rival"})
	kit.NoError(a, err)
}

// rival changes the object as often as the agent restores it.
func (a *author) rival() {
	objects := a.spoke.CoreV1().ConfigMaps(a.target)
	kit.Run(a, "rival", func(ctx context.Context) error {
		for ctx.Err() == nil {
			object, err := objects.Get(ctx, "a", metav1.GetOptions{})
			if err == nil && object.Data["k"] != "theirs" {
				_, err = objects.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`), metav1.PatchOptions{FieldManager: "rival"})
			}
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		return nil
	})
}

func (a *author) quota() {
	_, err := a.spoke.CoreV1().ResourceQuotas(a.target).Create(a.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": {}}}}, metav1.CreateOptions{})
	kit.NoError(a, err)
	kit.Eventually(a, "the quota counts", func() error {
		_, err := a.spoke.CoreV1().ConfigMaps(a.target).Create(a.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

func (a *author) webhook() {
	spokePlane.Webhook(a, a.target, "", func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not today"}}
	})
}

func (a *author) pause() {
	reader, err := fleet.NewReader(hubPlane.REST())
	kit.NoError(a, err)
	_, err = reader.SetPaused(a.Context(), "cluster", "", a.cluster, true)
	kit.NoError(a, err)
}
