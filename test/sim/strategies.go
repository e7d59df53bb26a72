package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// wish is what a work wants of a ConfigMap.
type wish struct {
	value    string
	note     string
	strategy workv1.UpdateStrategyType
	force    bool // of ServerSideApply
	orphaned bool // stays when the work does not declare it any more, or is deleted
}

// String says what is unusual about it; empty: nothing.
func (i wish) String() string {
	text := ""
	if i.strategy != workv1.UpdateStrategyTypeUpdate {
		text = string(i.strategy)
	}
	if i.force {
		text += " with force"
	}
	return text
}

// yields reports whether somebody else's value stays.
func (i wish) yields() bool {
	return i.strategy == workv1.UpdateStrategyTypeServerSideApply && !i.force
}

// ordinary reports whether all objects of a work are updated, and deleted with it. Others have any strategy.
func ordinary(work string) bool {
	var n int
	_, err := fmt.Sscanf(work, "work%d", &n)
	return err != nil || n%3 != 2
}

// chooseStrategies chooses how the objects of a work are written, and what becomes of them afterwards.
func (w *World) chooseStrategies(work *workv1.ManifestWork) {
	work.Spec.ManifestConfigs, work.Spec.DeleteOption = nil, nil
	if ordinary(work.Name) {
		return
	}
	for i := range 4 {
		strategies := []workv1.UpdateStrategyType{
			workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeServerSideApply,
			workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeReadOnly,
		}
		if i == 0 { // each generation writes something
			strategies = strategies[:3]
		}
		strategy := &workv1.UpdateStrategy{Type: strategies[w.random.intN(len(strategies))]}
		if strategy.Type == workv1.UpdateStrategyTypeServerSideApply {
			strategy.ServerSideApply = &workv1.ServerSideApplyConfig{Force: w.random.chance(50)}
		}
		work.Spec.ManifestConfigs = append(work.Spec.ManifestConfigs, workv1.ManifestConfigOption{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: namespace, Name: fmt.Sprintf("%s-%d", work.Name, i)}, UpdateStrategy: strategy,
		})
	}
	switch w.random.intN(4) {
	case 0:
		work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	case 1:
		work.Spec.DeleteOption = &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: namespace, Name: work.Name + "-3"}}},
		}
	}
}

// orphans reports whether a work leaves a ConfigMap when it does not declare it any more, or is deleted.
func orphans(work *workv1.ManifestWork, name string) bool {
	o := work.Spec.DeleteOption
	if o == nil {
		return false
	}
	return o.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan ||
		o.SelectivelyOrphan != nil && slices.ContainsFunc(o.SelectivelyOrphan.OrphaningRules, func(r workv1.OrphaningRule) bool { return r.Name == name })
}

// wishes returns what a work wants of its ConfigMaps, by name.
func wishes(work *workv1.ManifestWork) map[string]wish {
	found := map[string]wish{}
	for _, m := range work.Spec.Workload.Manifests {
		var o corev1.ConfigMap
		if err := json.Unmarshal(m.Raw, &o); err != nil {
			panic(err)
		}
		i := wish{value: o.Data["value"], note: o.Data["note"], strategy: workv1.UpdateStrategyTypeUpdate, orphaned: orphans(work, o.Name)}
		for _, c := range work.Spec.ManifestConfigs {
			if c.ResourceIdentifier.Name == o.Name && c.UpdateStrategy != nil {
				i.strategy, i.force = c.UpdateStrategy.Type, c.UpdateStrategy.ServerSideApply != nil && c.UpdateStrategy.ServerSideApply.Force
			}
		}
		found[o.Name] = i
	}
	return found
}

// declared returns the values of the ConfigMaps that a work declares.
func declared(work *workv1.ManifestWork) map[string]string {
	values := map[string]string{}
	for name, i := range wishes(work) {
		values[name] = i.value
	}
	return values
}

// terms says what is unusual about what a work wants.
func terms(work *workv1.ManifestWork) string {
	var parts []string
	all := wishes(work)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if text := all[name].String(); text != "" {
			parts = append(parts, name+" "+text)
		}
	}
	if o := work.Spec.DeleteOption; o != nil {
		parts = append(parts, string(o.PropagationPolicy))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// foreign is the value that somebody else gives an object.
const foreign = "somebody else's"

// difference returns how an object of a cluster is not as it is wanted; empty: it is.
func (i wish) difference(o *corev1.ConfigMap) string {
	switch {
	case i.strategy == workv1.UpdateStrategyTypeReadOnly:
		return ""
	case o == nil:
		return "is missing"
	case i.yields() && o.Data["value"] == foreign:
		return ""
	case owned(o.OwnerReferences) == i.orphaned:
		return fmt.Sprintf("has owners %v, though it is%s to be orphaned", o.OwnerReferences, map[bool]string{false: " not"}[i.orphaned])
	case i.strategy == workv1.UpdateStrategyTypeCreateOnly:
		return ""
	case o.Data["value"] == i.value && o.Data["note"] != i.note && o.Data["note"] != normal(i.note): // a webhook may have changed it
		return fmt.Sprintf("has note %q, want %q", o.Data["note"], i.note)
	case o.Data["value"] == i.value:
		return ""
	}
	return fmt.Sprintf("has value %s, want %s", o.Data["value"], i.value)
}

// owned reports whether some work owns an object.
func owned(owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return r.Kind == "AppliedManifestWork" })
}
