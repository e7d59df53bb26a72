package rollout

import (
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// healthy waits until Flux and Argo CD say this of the set, such as "Current Healthy": kstatus, and the script of
// deploy/argocd in the interpreter that Argo CD has.
func (w *canary) healthy(want string) {
	w.Helper()
	kit.Eventually(w, "the set is "+want, func() error {
		set, err := w.client.WorkV1alpha1().ManifestWorkReplicaSets(setsNS).Get(w.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return w.health(set, want)
	})
}

// worksHealthy is the same of each work of the set, by cluster.
func (w *canary) worksHealthy(want map[string]string) {
	w.Helper()
	kit.Eventually(w, fmt.Sprintf("the works are %v", want), func() error {
		for cluster, want := range want {
			works, err := w.client.WorkV1().ManifestWorks(cluster).List(w.Context(), metav1.ListOptions{})
			if err != nil || len(works.Items) != 1 {
				return fmt.Errorf("%s has %d works, %w", cluster, len(works.Items), err)
			}
			if err := w.health(&works.Items[0], want); err != nil {
				return fmt.Errorf("%s: %w", cluster, err)
			}
		}
		return nil
	})
}

// stalledWork creates a work whose manifest no cluster takes, and corrects it.
func (w *canary) stalledWork(cluster string) {
	w.Helper()
	works := w.client.WorkV1().ManifestWorks(cluster)
	const manifest = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "stalled"}}
	work.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}}}
	is := func(want string) {
		kit.Eventually(w, "the work is "+want, func() error {
			current, err := works.Get(w.Context(), work.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return w.health(current, want)
		})
	}
	_, err := works.Create(w.Context(), work, metav1.CreateOptions{})
	kit.NoError(w, err)
	is("Failed Degraded")
	corrected := `[{"op":"add","path":"/spec/workload/manifests/0/metadata/namespace","value":"default"}]`
	_, err = works.Patch(w.Context(), work.Name, types.JSONPatchType, []byte(corrected), metav1.PatchOptions{})
	kit.NoError(w, err)
	is("Current Healthy")
	kit.NoError(w, works.Delete(w.Context(), work.Name, metav1.DeleteOptions{}))
}

// health returns an error unless Flux and Argo CD say this of an object.
func (w *canary) health(object any, want string) error {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	kit.NoError(w, err)
	flux, err := status.Compute(&unstructured.Unstructured{Object: content})
	kit.NoError(w, err)
	script, err := os.ReadFile("../../deploy/argocd/health.lua")
	kit.NoError(w, err)
	// API servers with the CRDs of Open Cluster Management drop it.
	unstructured.RemoveNestedField(content, "status", "observedGeneration")
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, content))
	kit.NoError(w, state.DoString(string(script)))
	argo := state.CheckTable(-1)
	if got := fmt.Sprint(flux.Status, " ", argo.RawGetString("status")); got != want {
		return fmt.Errorf("%s, want %s: %s; %s", got, want, flux.Message, argo.RawGetString("message"))
	}
	return nil
}

// luaValue returns decoded JSON as Lua has it.
func luaValue(state *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, member := range v {
			table.RawSetString(key, luaValue(state, member))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range v {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	default:
		return lua.LNil
	}
}
