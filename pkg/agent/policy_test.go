package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// governed is a world whose agent has a policy, in which NAMESPACE is replaced by the test's.
type governed struct {
	*fixture
	path    string
	rules   *policy.File
	metrics *prometheus.Registry
	log     *kit.Log
}

func newGoverned(t *testing.T, text string) *governed {
	g := &governed{fixture: newWorld(t), path: filepath.Join(t.TempDir(), "policy.yaml"), metrics: prometheus.NewRegistry(), log: &kit.Log{}}
	g.write(text)
	var err error
	g.rules, err = policy.Open(policy.Config{File: g.path, Registerer: g.metrics, Logger: g.log.Logger()})
	kit.NoError(t, err)
	return g
}

func (g *governed) write(text string) {
	g.Helper()
	kit.NoError(g, os.WriteFile(g.path, []byte(strings.ReplaceAll(text, "NAMESPACE", g.namespace)), 0o600))
}

func (g *governed) govern(c *agent.Config) { c.Policy, c.Registerer = g.rules, g.metrics }

const spiedSecret = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: NAMESPACE}}"

// TestPolicy: a refused manifest is neither applied nor read, and says which rule it is; others go on. A
// change of the file takes effect by itself, a broken file has none.
func TestPolicy(t *testing.T) {
	g := newGoverned(t, "deniedResources: [secrets]")
	_, err := g.cluster.CoreV1().Secrets(g.namespace).Create(g.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"password": "hunter2"},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	works := g.source("hub1")
	read := make(chan string, 1000)
	g.agent(g.govern, func(c *agent.Config) {
		kit.Intercept(c.Kube, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
			if strings.Contains(request.URL.Path, "/secrets") {
				read <- request.Method + " " + request.URL.Path
			}
			return next.RoundTrip(request)
		})
	})
	work := g.work("web", configMap("a", "1"), spiedSecret)
	g.options(&work.Spec, `
- resourceIdentifier: {group: "", resource: secrets, namespace: NAMESPACE, name: s}
  updateStrategy: {type: ReadOnly}
  feedbackScrapeType: Watch
  feedbackRules: [{type: JSONPaths, jsonPaths: [{name: password, path: .data.password}]}]
`)
	g.Create(works, work)
	const denied = "refused by the policy of the cluster's owner: resource secrets is denied (rule deniedResources)"
	g.manifestSays(works, "web", 1, "Failed to apply manifest: "+denied)
	g.data("a", "1")
	select {
	case request := <-read:
		t.Errorf("the agent has sent %s", request)
	default:
	}

	g.write("deniedResources: [Secret]") // a kind, which is no resource
	kit.Eventually(t, "the broken file shows", func() error {
		if !strings.Contains(g.log.String(), "last valid content stays in use") {
			return errors.New("nothing is logged")
		}
		return nil
	})
	families, err := g.metrics.Gather()
	kit.NoError(t, err)
	seen := false
	for _, family := range families {
		if family.GetName() == "workwire_agent_policy_valid" {
			seen = true
			if value := family.Metric[0].GetGauge().GetValue(); value != 0 {
				t.Errorf("the metric is %v while the file is broken", value)
			}
		}
	}
	if !seen {
		t.Error("there is no metric workwire_agent_policy_valid")
	}
	g.change(works, "web", configMap("a", "2"), spiedSecret)
	g.manifestSays(works, "web", 1, denied)
	g.data("a", "2")

	g.write("deniedResources: [pods]")
	g.Is(works, "web", "Applied=True", "Available=True")
}

// TestPolicyOfPods: pods that the policy refuses are not listed to tell why a workload is not ready.
func TestPolicyOfPods(t *testing.T) {
	g := newGoverned(t, `allowedResources: ["*.apps"]`)
	works := g.source("hub1")
	g.agent(g.govern)
	work := g.work("web", unschedulable)
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	g.Create(works, work)
	g.progressing(works, "web", "Available: 0/1: the agent may not list pods in namespace "+g.namespace+", which would tell why")
	if got := g.requests.All(kit.On("pods")); len(got) > 0 {
		t.Errorf("pods are asked for: %v", got)
	}
}

// TestPolicyBecomesStricter: what was applied stays as it is, and stays when its work goes.
func TestPolicyBecomesStricter(t *testing.T) {
	g := newGoverned(t, "deniedResources: [pods]")
	works := g.source("hub1")
	g.agent(g.govern)
	g.deploy(works, "web", configMap("a", "1"), configMap("dropped", "1"))
	g.deploy(works, "other", configMap("b", "1"))
	g.write("allowedResources: [secrets]")
	g.manifestSays(works, "web", 0, "resource configmaps is not allowed (rule allowedResources)")
	g.change(works, "web", configMap("a", "2"))
	g.manifestSays(works, "web", 0, "resource configmaps is not allowed (rule allowedResources)")
	g.orphaned("dropped")
	g.remove(works, "web")
	g.orphaned("a")
	g.data("a", "1")
	g.remove(works, "other")
	g.orphaned("b")
	g.noneApplied()
}

// TestPolicyOfExecutors: a work without the right executor does nothing, and drops nothing that it has. To
// delete it needs none.
func TestPolicyOfExecutors(t *testing.T) {
	g := newGoverned(t, "deniedResources: [pods]")
	works := g.source("hub1")
	g.agent(g.govern)
	g.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
	g.write("allowedExecutors: [NAMESPACE/executor2]")
	g.manifestSays(works, "web", 0, "the work has no executor (rule allowedExecutors)")
	g.change(works, "web", configMap("a", "2"))
	kit.Await(t, works, "web", "shows its second spec", func(work *workv1.ManifestWork) bool {
		return len(work.Status.ResourceStatus.Manifests) == 1
	})
	g.Create(works, g.executed("other", configMap("c", "1")))
	g.manifestSays(works, "other", 0, fmt.Sprintf("executor %s/executor1 is not allowed (rule allowedExecutors)", g.namespace))
	g.data("a", "1")
	g.data("b", "1")
	g.remove(works, "web")
	g.data("a", "")
	g.data("b", "")
}

// TestPolicySealed: a spec that came in clear is not applied.
func TestPolicySealed(t *testing.T) {
	g := newGoverned(t, "requireSealed: true")
	works := g.source("hub1")
	g.agent(g.govern)
	g.Create(works, g.work("web", configMap("a", "1")))
	g.manifestSays(works, "web", 0, "the spec of the work is not sealed (rule requireSealed)")
	g.data("a", "")
}

// TestPolicyAtStart: without a valid file there is no agent.
func TestPolicyAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := policy.Open(policy.Config{File: path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
	kit.NoError(t, os.WriteFile(path, []byte("requireExecuter: true"), 0o600))
	if _, err := policy.Open(policy.Config{File: path}); err == nil || !strings.Contains(err.Error(), "requireExecuter") {
		t.Errorf("a broken file: %v", err)
	}
	var none *policy.File
	if p := none.Get(time.Now()); p.RefuseWork(policy.Work{}) != nil {
		t.Error("no file refuses")
	}
}
