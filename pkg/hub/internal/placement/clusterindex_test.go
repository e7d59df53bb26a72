package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

func TestClusterIndexReturnsAffectedPlacements(t *testing.T) {
	x := newClusterIndex(scoreless)
	west, all, few := controller.KeyOf(placing(func(p *clusterv1beta1.Placement) { p.Name = "west" })), controller.KeyOf(placing()), controller.KeyOf(placing(func(p *clusterv1beta1.Placement) { p.Name = "few" }))
	x.setRules(west, mustRules(t, placing(predicates(byLabels("region", "west")))))
	x.setRules(all, mustRules(t, placing(naming("one", "1"))))
	x.setRules(few, mustRules(t, placing()))
	x.setRules(few, nil)
	object := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for _, step := range []struct {
		name   string
		change func(*clusterv1.ManagedCluster)
		want   []string
	}{
		{"it joins", func(*clusterv1.ManagedCluster) {}, nil},
		{"it is accepted", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true }, []string{"p", "west"}},
		{"it is heard from", func(c *clusterv1.ManagedCluster) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.LastSeenAnnotationKey, "now")
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable}}
		}, nil},
		{"a label nobody selects", labelled("x", "y"), nil},
		{"a label that one selects", labelled("region", "west"), []string{"west"}},
		{"a label of a group", labelled("group", "1"), []string{"p"}},
		{"a taint", tainting("k", clusterv1.TaintEffectNoSelect, 0), []string{"p", "west"}},
		{"a taint more", tainting("l", clusterv1.TaintEffectNoSelect, 0), nil},
		{"no taints", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil }, []string{"p", "west"}},
		{"a claim nobody selects", claiming("x", "y"), nil},
		{"it is being deleted", func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: noon} }, []string{"p", "west"}},
	} {
		object = object.DeepCopy()
		step.change(object)
		var got []string
		for _, key := range x.observe(object, noon) {
			got = append(got, key.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	if got := x.byName(); len(got) != 1 || got[0].name != "c" || got[0].accepted {
		t.Errorf("the clusters: %v", got)
	}
	x.observe(&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, noon)
	if got := x.byName(); len(got) != 2 || got[0].name != "b" {
		t.Errorf("the clusters: %v", got)
	}
	if got := x.remove("b", noon); len(got) != 2 || len(x.byName()) != 1 {
		t.Errorf("one is gone: %v", got)
	}
	if got := x.remove("b", noon); got != nil {
		t.Errorf("it was gone: %v", got)
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Informers is required") || !strings.Contains(err.Error(), "Client is required") {
		t.Errorf("%v", err)
	}
}

func TestNewFailsIfMetricsAreRegistered(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := func() Config {
		client := &versioned.Clientset{}
		return configWith(client, registry)
	}
	if _, err := New(config()); err != nil {
		t.Fatal(err)
	}
	if _, err := New(config()); err == nil || !strings.Contains(err.Error(), "placement: ") {
		t.Errorf("%v", err)
	}
}

func configWith(client versioned.Interface, registry prometheus.Registerer) Config {
	informers := controller.NewInformers(controller.InformersConfig{Client: client})
	return Config{Informers: informers, Bindings: clustersets.NewBindings(informers, true), Client: client, Recorder: &record.FakeRecorder{}, Registerer: registry}
}

// TestAdjusted: a step of the clock makes no taint older.
func TestAdjusted(t *testing.T) {
	now, elapsed := noon, time.Duration(0)
	minute := int64(60)
	r := mustRules(t, placing(tolerating(clusterv1beta1.Toleration{Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &minute})))
	r.clock = walltime.From(func() (time.Time, time.Duration) { return now, elapsed })
	c := accepted("c", tainting("k", clusterv1.TaintEffectNoSelect, 0))
	if got := r.evaluate(c, now); got.fit != eligible || got.until != noon.Unix()+60 {
		t.Errorf("without a step: %+v", got)
	}
	now, elapsed = now.Add(time.Hour+time.Second), time.Second
	if got := r.evaluate(c, now); got.fit != eligible || got.until != noon.Add(time.Hour).Unix()+60 {
		t.Errorf("after a step: %+v", got)
	}
}
