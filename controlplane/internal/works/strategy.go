package works

import (
	"bytes"
	"context"
	stdjson "encoding/json"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// strategy is what happens to a work when everything but its status is written.
type strategy struct {
	runtime.ObjectTyper
	rules rules
}

func (strategy) GenerateName(base string) string { return names.SimpleNameGenerator.GenerateName(base) }
func (strategy) NamespaceScoped() bool           { return true }
func (strategy) AllowCreateOnUpdate() bool       { return false }
func (strategy) AllowUnconditionalUpdate() bool  { return false }
func (strategy) Canonicalize(runtime.Object)     {}

func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return fieldsOf("status") }

func (strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	work := object.(*workv1.ManifestWork)
	work.Status = workv1.ManifestWorkStatus{}
	work.Generation = 1
	canonical(work.Spec.Workload.Manifests, nil)
}

func (strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	work, before := object.(*workv1.ManifestWork), old.(*workv1.ManifestWork)
	work.Status = before.Status
	canonical(work.Spec.Workload.Manifests, before.Spec.Workload.Manifests)
	if !apiequality.Semantic.DeepEqual(work.Spec, before.Spec) {
		work.Generation = before.Generation + 1
	}
}

func (s strategy) Validate(ctx context.Context, object runtime.Object) field.ErrorList {
	return s.rules.created(ctx, object.(*workv1.ManifestWork))
}

func (s strategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	return s.rules.updated(ctx, object.(*workv1.ManifestWork), old.(*workv1.ManifestWork))
}

func (s strategy) WarningsOnCreate(ctx context.Context, object runtime.Object) []string {
	return s.rules.whole.WarningsOnCreate(ctx, object)
}

func (s strategy) WarningsOnUpdate(ctx context.Context, object, old runtime.Object) []string {
	return s.rules.whole.WarningsOnUpdate(ctx, object, old)
}

// statusStrategy is what happens to a work when its status is written.
type statusStrategy struct{ strategy }

func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return fieldsOf("metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	work, before := object.(*workv1.ManifestWork), old.(*workv1.ManifestWork)
	managed := work.ManagedFields
	before.ObjectMeta.DeepCopyInto(&work.ObjectMeta)
	work.ManagedFields = managed
	before.Spec.DeepCopyInto(&work.Spec)
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	return s.rules.reported(ctx, object.(*workv1.ManifestWork), old.(*workv1.ManifestWork))
}

func (statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func fieldsOf(names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	set := fieldpath.NewSet()
	for _, name := range names {
		set.Insert(fieldpath.MakePathOrDie(name))
	}
	return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(workv1.GroupVersion.String()): set}
}

// canonical writes manifests as an API server writes what it knows no type of: keys in order, each once. Two texts of one
// manifest are then equal, and no new generation. Those that are as before are left alone. One that nobody could read,
// because of the number 1e400 for example, becomes its text, which is no object and so not valid.
func canonical(manifests, before []workv1.Manifest) {
	for i := range manifests {
		raw := manifests[i].Raw
		if len(raw) == 0 || i < len(before) && bytes.Equal(raw, before[i].Raw) {
			continue
		}
		var content any
		if json.Unmarshal(raw, &content) != nil {
			content = string(raw)
		}
		if text, err := stdjson.Marshal(content); err == nil {
			manifests[i].Raw = text
		}
	}
}

// setDefaults sets what the definition gives a default.
func setDefaults(work *workv1.ManifestWork) {
	setDefault := func(value *string, to string) {
		if *value == "" {
			*value = to
		}
	}
	if option := work.Spec.DeleteOption; option != nil {
		setDefault((*string)(&option.PropagationPolicy), string(workv1.DeletePropagationPolicyTypeForeground))
	}
	for i := range work.Spec.ManifestConfigs {
		config := &work.Spec.ManifestConfigs[i]
		setDefault((*string)(&config.FeedbackScrapeType), string(workv1.FeedbackScrapeTypePoll))
		update := config.UpdateStrategy
		if update == nil {
			continue
		}
		setDefault((*string)(&update.Type), string(workv1.UpdateStrategyTypeUpdate))
		if apply := update.ServerSideApply; apply != nil {
			setDefault(&apply.FieldManager, workv1.DefaultFieldManager)
			for j := range apply.IgnoreFields {
				setDefault((*string)(&apply.IgnoreFields[j].Condition), string(workv1.IgnoreFieldsConditionOnSpokePresent))
			}
		}
	}
}
