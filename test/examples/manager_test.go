package examples

import (
	"slices"
	"testing"
)

func TestDeclaredFieldManager(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]string{
		"Update": "jenkins Update", "CreateOnly": "jenkins Update", "ServerSideApply": "jenkins Apply",
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			name := w.apply("field-manager/config-map.yaml", func(spec map[string]any) {
				w.setStrategy(spec, map[string]any{"type": strategy})
				w.watchField(spec, configMapsResource, "example", ".data.theirs")
			})
			w.until(name, "is applied", applied, available)
			if got := managers(w.has(configMapsResource, "example", "v", "data", "k")); !slices.Equal(got, []string{want}) {
				t.Errorf("fields are owned by %v, want %s alone", got, want)
			}

			// Another actor owns other fields, and keeps them.
			w.patch(configMapsResource, "example", `{"metadata":{"annotations":{"theirs":"x"}}}`)
			w.edit(name, func(spec map[string]any) {
				set(spec, map[string]any{"team": "a"}, "workload", "manifests", 0, "metadata", "labels")
			})
			w.until(name, "is applied", applied, available)
			example := w.has(configMapsResource, "example", "x", "metadata", "annotations", "theirs")
			if got := managers(example); !slices.Contains(got, want) || !slices.Contains(got, "somebody Update") || len(got) != 2 {
				t.Errorf("fields are owned by %v, want %s and somebody Update", got, want)
			}
		})
	}
}

// setStrategy sets the update strategy of the ConfigMap of the example.
func (w *site) setStrategy(spec map[string]any, strategy map[string]any) {
	configs, _ := spec["manifestConfigs"].([]any)
	spec["manifestConfigs"] = append(configs, map[string]any{
		"resourceIdentifier": map[string]any{"resource": "configmaps", "namespace": w.target, "name": "example"},
		"updateStrategy":     strategy,
	})
}

// TestTwoFieldManagers: a manifest that names another one than its strategy does is not applied.
func TestTwoFieldManagers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("field-manager/config-map.yaml", func(spec map[string]any) {
		w.setStrategy(spec, map[string]any{"type": "ServerSideApply", "serverSideApply": map[string]any{"fieldManager": "work-agent-other"}})
	})
	w.until(name, "is refused", manifestFails(0, `metadata.options.fieldManager "jenkins" and serverSideApply.fieldManager "work-agent-other" differ`))
	w.edit(name, func(spec map[string]any) {
		set(spec, "work-agent-other", "workload", "manifests", 0, "metadata", "options", "fieldManager")
	})
	w.until(name, "is applied", applied, available)
	if got := managers(w.exists(configMapsResource, "example")); !slices.Equal(got, []string{"work-agent-other Apply"}) {
		t.Errorf("fields are owned by %v", got)
	}
}
