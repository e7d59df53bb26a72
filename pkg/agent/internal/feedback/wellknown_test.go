package feedback_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/agent/internal/feedback"
)

// whole has an object of every kind that is well known, with all its values, and what is reported
// of it.
var whole = []struct{ object, want string }{
	{
		`{"apiVersion":"apps/v1","kind":"Deployment","status":{"availableReplicas":1,"readyReplicas":2,"replicas":3,"updatedReplicas":4}}`,
		"ReadyReplicas=2 Replicas=3 AvailableReplicas=1",
	},
	{
		`{"apiVersion":"apps/v1","kind":"DaemonSet","status":{"numberReady":1,"desiredNumberScheduled":3,"numberAvailable":2}}`,
		"NumberReady=1 DesiredNumberScheduled=3 NumberAvailable=2",
	},
	{
		`{"apiVersion":"batch/v1","kind":"Job","status":{"succeeded":2,"conditions":[{"type":"Failed","status":"False"},{"type":"Complete","status":"True"}]}}`,
		"JobComplete='True' JobSucceeded=2",
	},
	{
		`{"apiVersion":"v1","kind":"Pod","status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True"},{"type":"Ready","status":"False"}]}}`,
		"PodReady='False' PodPhase='Running'",
	},
	{
		`{"apiVersion":"apps/v1","kind":"StatefulSet","status":{"availableReplicas":1,"readyReplicas":2,"replicas":3}}`,
		"ReadyReplicas=2 Replicas=3 AvailableReplicas=1",
	},
	{
		`{"apiVersion":"apps/v1","kind":"ReplicaSet","status":{"availableReplicas":1,"readyReplicas":2,"replicas":3}}`,
		"ReadyReplicas=2 Replicas=3 AvailableReplicas=1",
	},
	{
		`{"apiVersion":"batch/v1","kind":"CronJob","status":{"lastScheduleTime":"2026-01-01T00:00:00Z","lastSuccessfulTime":"2026-01-02T00:00:00Z"}}`,
		"CronJobLastScheduleTime='2026-01-01T00:00:00Z' CronJobLastSuccessfulTime='2026-01-02T00:00:00Z'",
	},
	{
		`{"apiVersion":"v1","kind":"PersistentVolumeClaim","status":{"phase":"Bound","capacity":{"storage":"10Gi"}}}`,
		"PersistentVolumeClaimPhase='Bound' PersistentVolumeClaimCapacity='10Gi'",
	},
	{
		`{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":"10.0.0.1"},"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"},{"ip":"5.6.7.8","hostname":"a.example"}]}}}`,
		"ServiceClusterIP='10.0.0.1' ServiceLoadBalancerIP='1.2.3.4' ServiceLoadBalancerHostname='a.example'",
	},
	{
		`{"apiVersion":"v1","kind":"Namespace","status":{"phase":"Terminating"}}`,
		"NamespacePhase='Terminating'",
	},
	{
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","status":{"currentReplicas":1,"desiredReplicas":2}}`,
		"CurrentReplicas=1 DesiredReplicas=2",
	},
	{
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","status":{"currentReplicas":1,"desiredReplicas":2}}`,
		"CurrentReplicas=1 DesiredReplicas=2",
	},
}

func TestWellKnown(t *testing.T) {
	reader := feedback.New(feedback.Config{})
	documented := documentation(t)
	for _, c := range whole {
		obj := object(t, c.object)
		kind := obj.GetAPIVersion() + " " + obj.GetKind()
		t.Run(kind, func(t *testing.T) {
			values, err := reader.Values(nil, wellKnown(), obj, 1)
			if err != nil || text(values) != c.want {
				t.Errorf("%q, %v; want %q", text(values), err, c.want)
			}
			// The documentation has the same names and paths, in the same order.
			table, ok := documented[kind]
			if !ok {
				t.Fatalf("docs/feedback.md does not have it; it has %v", slices.Sorted(maps.Keys(documented)))
			}
			delete(documented, kind)
			byPath, err := reader.Values(nil, paths(table...), obj, 1)
			if diff := cmp.Diff(values, byPath); diff != "" || err != nil {
				t.Errorf("what docs/feedback.md says gives other values: %s%v", diff, err)
			}
			// What is not there yet is no error.
			obj.Object = map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind()}
			if values, err := reader.Values(nil, wellKnown(), obj, 1); err != nil || len(values) > 0 {
				t.Errorf("without a status: %q, %v", text(values), err)
			}
		})
	}
	if len(documented) > 0 {
		t.Errorf("docs/feedback.md has kinds that are not tested: %v", slices.Sorted(maps.Keys(documented)))
	}
}

var (
	row   = regexp.MustCompile("(?m)^\\| ([a-z0-9/, ]+ [A-Z][A-Za-z]+) \\| (`.*) \\|$")
	value = regexp.MustCompile("`([A-Z][A-Za-z]*)` `(\\.[^`]*)`")
)

// documentation returns name, path, name, path … of each kind of docs/feedback.md.
func documentation(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("../../../../docs/feedback.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(string(data), -1) {
		space := strings.LastIndex(match[1], " ")
		versions, kind := match[1][:space], match[1][space+1:]
		for version := range strings.SplitSeq(versions, ", ") {
			for _, pair := range value.FindAllStringSubmatch(match[2], -1) {
				tables[version+" "+kind] = append(tables[version+" "+kind], pair[1], pair[2])
			}
		}
	}
	return tables
}

func BenchmarkValues(b *testing.B) {
	conditions := paths("isAvailable", `.status.conditions[?(@.type=="Available")].status`, "generation", ".metadata.generation")
	for name, c := range map[string]struct {
		config feedback.Config
		paths  bool
		known  bool
	}{
		"WellKnownStatus": {known: true},
		"JSONPaths":       {paths: true},
		"both":            {known: true, paths: true},
		"both, raw":       {config: feedback.Config{RawJSON: true}, known: true, paths: true},
	} {
		b.Run(name, func(b *testing.B) {
			reader := feedback.New(c.config)
			rules := conditions[:0:0]
			if c.known {
				rules = append(rules, wellKnown()...)
			}
			if c.paths {
				rules = append(rules, conditions...)
			}
			obj := object(b, deployment)
			b.ReportAllocs()
			for b.Loop() {
				values, err := reader.Values(nil, rules, obj, 1)
				if err != nil || len(values) == 0 {
					b.Fatal(fmt.Sprint(values, err))
				}
			}
		})
	}
}
