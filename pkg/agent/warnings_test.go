package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// says waits until the condition Applied of a manifest, or of the work if manifest is negative, has
// status True and a message.
func (w *fixture) says(works workclientv1.ManifestWorkInterface, name string, manifest int, message string) {
	w.Helper()
	kit.AwaitCheck(w, works, name, fmt.Sprintf("says %q", message), func(work *workv1.ManifestWork) error {
		if work == nil {
			return fmt.Errorf("there is none")
		}
		conditions := work.Status.Conditions
		if manifest >= 0 {
			if len(work.Status.ResourceStatus.Manifests) <= manifest {
				return fmt.Errorf("no status of the manifest")
			}
			conditions = work.Status.ResourceStatus.Manifests[manifest].Conditions
		}
		c := meta.FindStatusCondition(conditions, workv1.ManifestApplied)
		if c == nil || c.Status != "True" || c.Message != message || c.ObservedGeneration != work.Generation {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// TestWarnings applies manifests with mistakes that the API server tolerates. The conditions have
// its warnings, at no further request, also when other manifests change and after a restart.
func TestWarnings(t *testing.T) {
	const (
		misspelled = `Apply manifest complete; warnings: unknown field "datas"`
		fine       = "Apply manifest complete"
	)
	bad := "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, namespace: NAMESPACE}, data: {k: \"1\"}, datas: {k: \"2\"}}"
	for _, strategy := range []workv1.UpdateStrategyType{
		workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeServerSideApply,
	} {
		t.Run(string(strategy), func(t *testing.T) {
			w := newWorld(t)
			works, log := w.source("hub1"), &kit.Log{}
			state := t.TempDir()
			configure := func(c *agent.Config) { c.StateDir, c.Logger = state, log.Logger() }
			w.agent(configure)
			work := w.work("web", strings.ReplaceAll(bad, "NAME,", "bad,"), configMap("good", "1"))
			work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{
				{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "*", Name: "*"}, UpdateStrategy: &workv1.UpdateStrategy{Type: strategy}},
				{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "ConfigMap", Namespace: w.namespace, Name: "good"}},
			}
			w.Create(works, work)
			unmatched := "manifestConfigs[1] for ConfigMap " + w.namespace + `/good matches no manifest; resource must be "configmaps"`
			if strategy == workv1.UpdateStrategyTypeServerSideApply {
				// The API server refuses what it cannot merge.
				w.manifestSays(works, "web", 0, "datas: field not declared in schema")
				return
			}
			w.says(works, "web", 0, misspelled)
			w.says(works, "web", 1, fine)
			w.says(works, "web", -1, "Apply manifest work complete; warnings: "+unmatched+"; see Applied of 1 of 2 manifests")
			if got := w.requests.All(kit.On("configmaps"), kit.Request.Writes); len(got) != 2 {
				t.Errorf("%d requests for two manifests, want 2: %v", len(got), got)
			}

			w.change(works, "web", strings.ReplaceAll(bad, "NAME,", "bad,"), configMap("good", "2"))
			w.says(works, "web", 0, misspelled)
			w.stop()
			w.agent(configure)
			w.change(works, "web", strings.ReplaceAll(bad, "NAME,", "bad,"), configMap("good", "2"), configMap("third", "1"))
			w.says(works, "web", 2, fine)
			if strategy == workv1.UpdateStrategyTypeUpdate { // it is written after a restart
				w.says(works, "web", 0, misspelled)
			}
			w.Change(works, "web", func(work *workv1.ManifestWork) {
				work.Spec.Workload = w.work("", configMap("bad", "1"), configMap("good", "2")).Spec.Workload
				work.Spec.ManifestConfigs = work.Spec.ManifestConfigs[:1]
			})
			w.says(works, "web", 0, fine)
			w.says(works, "web", -1, "Apply manifest work complete")
			if lines := log.Lines("unknown field"); len(lines) > 0 {
				t.Errorf("the log has warnings: %v", lines)
			}
		})
	}
}

// TestWarningOfDuplicates applies a manifest that has a field twice.
func TestWarningOfDuplicates(t *testing.T) {
	w := newWorld(t)
	raw := w.rawSource("hub1")
	spec := raw.spec("web", "twice", 1, configMap("twice", "2"))
	manifest := &spec.Bundle.Manifests[0]
	manifest.Raw = []byte(strings.Replace(string(manifest.Raw), `"data":{`, `"data":{"k":"1",`, 1))
	raw.send(spec, nil)
	raw.answered("the warning", func(s *wire.Status) bool {
		return len(s.Status.ResourceStatus.Manifests) == 1 && strings.HasPrefix(s.Status.ResourceStatus.Manifests[0].Conditions[0].Message,
			`Apply manifest complete; warnings: duplicate field "data.k"`)
	})
	w.data("twice", "2")
}
