package symptoms

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/keykit"
	"github.com/workwire/workwire/test/kit/world"
)

// change gives the work another value.
func (p *patient) change(name string) {
	p.Helper()
	p.patch(name, fmt.Sprintf(`{"spec":{"workload":{"manifests":[%s]}}}`, strings.Replace(string(p.manifest(configMap).Raw), `"k":"1"`, `"k":"2"`, 1)))
}

func (p *patient) patch(name, patch string) {
	p.Helper()
	_, err := p.Works(p.i).
		Patch(p.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	kit.NoError(p, err)
}

// empty checks that kubectl get shows nothing of an agent.
func (p *patient) empty(name string) {
	p.Helper()
	cells := p.columns(name)
	for _, column := range []string{"APPLIED", "AVAILABLE"} {
		if _, exists := cells["WANTED"]; !exists || cells[column] != "" {
			p.Errorf("column %s is not empty: %v", column, cells)
		}
		if !strings.Contains(p.section, column) {
			p.Errorf("the page does not name column %s", column)
		}
	}
}

func (p *patient) emptyColumns() {
	p.work("hello", configMap)
	see := func() string { return p.conditions("hello") }
	p.quoted("Delivered", see, "ClusterNotFound")
	p.accept(false)
	p.quoted("Delivered", see, "ClusterNotAccepted")
	p.empty("hello")
}

func (p *patient) anotherSource() {
	p.accept(true)
	p.agent(func(c *agent.Config) { c.Topics = world.Topics("another") })
	p.log.Await(p, "connected to the broker")
	p.work("hello", configMap)
	p.quoted("Delivered", func() string { return p.conditions("hello") }, "ClusterAway")
	p.empty("hello")
}

func (p *patient) notRunning() {
	p.accept(true)
	p.agent()
	p.work("web", unschedulable, workv1.ReportReadinessAnnotationKey)
	p.quoted("a condition", func() string { return p.conditions("web") }, "Available: 0/1")
	if cells := p.columns("web"); cells["APPLIED"] != "True" || cells["READY"] == "True" {
		p.Errorf("columns %v", cells)
	}
}

func (p *patient) changeIsNotThere() {
	p.accept(true)
	stop := p.agent()
	p.work("web", configMap)
	p.applied("web")
	stop()
	kit.Eventually(p, "the cluster is away", func() error {
		if text := p.clusterConditions(); !strings.Contains(text, "ManagedClusterDisconnected") {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
	p.change("web")
	p.quoted("Delivered", func() string { return p.conditions("web") }, "Applied", "Delivered")
	p.quoted("kubectl get", func() string {
		cells := p.columns("web")
		if cells["APPLIED"] == "True" && cells["OBSERVED"] == "1" && cells["WANTED"] == "2" {
			return "OBSERVED WANTED"
		}
		return fmt.Sprint(cells)
	}, "OBSERVED", "WANTED")
}

func (p *patient) paused() {
	p.accept(true)
	p.agent()
	p.work("web", configMap)
	p.applied("web")
	p.patch("web", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, workv1.PausedAnnotationKey))
	p.change("web")
	p.quoted("Delivered", func() string { return p.conditions("web") }, "Paused")
	p.quoted("workctl explain", func() string { return p.explain("web") }, "workctl resume work")
	p.patch("web", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workv1.PausedAnnotationKey))
	p.applied("web")
}

func (p *patient) tooLarge() {
	p.accept(true)
	p.agent()
	p.work("web", strings.Replace(configMap, `"k":"1"`, `"k":"`+strings.Repeat("x", packetLimit)+`"`, 1))
	p.quoted("Delivered", func() string { return p.conditions("web") }, "TooLarge")
	p.quoted("the hub's log", p.hub.Log.String, "publish refused")
}

// trusting is an agent that believes no event of this hub, which does not sign.
func (p *patient) trusting(registry *prometheus.Registry) {
	p.Helper()
	dir := p.TempDir()
	file := dir + "/trusted-keys.yaml"
	keykit.Write(p, dir+"/signing.key", file, signing.TrustedKey{Sources: []wire.SourceID{source}})
	trusted, err := signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: file, Logger: p.log.Logger()})
	kit.NoError(p, err)
	p.agent(func(c *agent.Config) { c.TrustedKeys, c.Registerer = trusted, registry })
}

func (p *patient) noStatus() {
	p.accept(true)
	registry := prometheus.NewRegistry()
	p.trusting(registry)
	p.work("web", configMap)
	kit.Eventually(p, "the agent is connected", func() error {
		if text := p.clusterConditions(); !strings.Contains(text, "ManagedClusterConditionAvailable=True") {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
	const metric = "workwire_agent_untrusted_events_total"
	p.quoted("its metric", func() string {
		if kit.Gather(p, registry).Sum(metric) > 0 {
			return metric
		}
		return ""
	}, metric)
}

func (p *patient) untrusted() {
	p.accept(true)
	p.trusting(prometheus.NewRegistry())
	p.work("web", configMap)
	p.quoted("its log", p.log.String, "event refused because of its signature")
}

func (p *patient) unknown() {
	p.accept(true)
	p.agent()
	kit.Eventually(p, "the agent is connected", func() error {
		if text := p.clusterConditions(); !strings.Contains(text, "ManagedClusterConditionAvailable=True") {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
	p.Broker.Stop()
	p.quoted("its condition", p.clusterConditions, "Unknown", "HubDisconnected")
}

func (p *patient) doesNotGoAway() {
	p.accept(true)
	p.agent()
	p.work("held", strings.Replace(configMap, `"name":"a"`, `"name":"held","finalizers":["example.com/hold"]`, 1))
	p.applied("held")
	works := p.Works(p.i)
	kit.NoError(p, works.Delete(p.Context(), "held", metav1.DeleteOptions{}))
	p.quoted("workctl explain", func() string { return p.explain("held") }, "finalizer")
	if text := p.explain("held"); !strings.Contains(text, "ConfigMap "+p.target+"/held") {
		p.Errorf("it does not name the object:\n%s", text)
	}
	const forget = `[{"op":"remove","path":"/metadata/finalizers"}]`
	if !strings.Contains(p.section, forget) {
		p.Errorf("the page does not have the patch %s", forget)
	}
	_, err := works.Patch(p.Context(), "held", types.JSONPatchType, []byte(forget), metav1.PatchOptions{})
	kit.NoError(p, err)
	kit.Eventually(p, "the work is forgotten", func() error {
		if text := p.conditions("held"); !strings.Contains(text, "not found") {
			return fmt.Errorf("it has\n%s", text)
		}
		return nil
	})
	_, err = kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().ConfigMaps(p.target).Patch(p.Context(), "held", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	kit.NoError(p, err)
}

func (p *patient) forbidden() {
	p.accept(true)
	p.withoutSecrets()
	p.quoted("Applied", func() string { return p.conditions("secret") }, "is forbidden")
	if text := p.conditions("secret"); !strings.Contains(text, "Applied=False") {
		p.Errorf("it has\n%s", text)
	}
}
