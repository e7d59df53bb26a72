package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// nameMax is the longest name of a work: agents keep it as an AppliedManifestWork
// whose name is a hash of 64 characters, a dash and the work's name, at most 253.
const nameMax = 253 - 65

// normalize gives manifests the form in which they are stored and sent: JSON
// without spaces and with sorted keys, so that equal specs are equal bytes. What is
// no JSON stays as it is, for validate to refuse.
func normalize(spec *workv1.ManifestWorkSpec) {
	for i := range spec.Workload.Manifests {
		manifest := &spec.Workload.Manifests[i]
		if len(manifest.Raw) == 0 && manifest.Object != nil {
			if raw, err := json.Marshal(manifest.Object); err == nil {
				manifest.Raw = raw
			}
		}
		manifest.Object = nil
		if sorted, err := sortKeys(manifest.Raw); err == nil {
			manifest.Raw = sorted
		}
	}
}

func sortKeys(raw []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("more than one value")
	}
	var sorted bytes.Buffer
	encoder := json.NewEncoder(&sorted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(sorted.Bytes()), nil
}

// validate finds what is wrong with a work, by field.
func (c *Client) validate(work *workv1.ManifestWork) field.ErrorList {
	meta := field.NewPath("metadata")
	faults := validation.ValidateObjectMeta(&work.ObjectMeta, true, validation.NameIsDNSSubdomain, meta)
	if len(work.Name) > nameMax {
		faults = append(faults, field.TooLong(meta.Child("name"), work.Name, nameMax))
	}
	if work.Namespace != "" {
		if _, err := c.topics.Specs(wire.ClusterName(work.Namespace)); err != nil {
			faults = append(faults, field.Invalid(meta.Child("namespace"), work.Namespace, err.Error()))
		}
	}
	return append(faults, validateSpec(&work.Spec, field.NewPath("spec"))...)
}

func validateSpec(spec *workv1.ManifestWorkSpec, path *field.Path) field.ErrorList {
	faults := validateManifests(spec.Workload.Manifests, path.Child("workload", "manifests"))
	if option := spec.DeleteOption; option != nil {
		faults = append(faults, oneOf(option.PropagationPolicy, true, path.Child("deleteOption", "propagationPolicy"),
			workv1.DeletePropagationPolicyTypeForeground, workv1.DeletePropagationPolicyTypeOrphan,
			workv1.DeletePropagationPolicyTypeSelectivelyOrphan)...)
	}
	for i := range spec.ManifestConfigs {
		faults = append(faults, validateConfig(&spec.ManifestConfigs[i], path.Child("manifestConfigs").Index(i))...)
	}
	if spec.Executor != nil {
		subject, at := spec.Executor.Subject, path.Child("executor", "subject")
		faults = append(faults, oneOf(subject.Type, false, at.Child("type"), workv1.ExecutorSubjectTypeServiceAccount)...)
		if account := subject.ServiceAccount; account == nil {
			faults = append(faults, field.Required(at.Child("serviceAccount"), ""))
		} else {
			faults = append(faults, required(account.Namespace, at.Child("serviceAccount", "namespace"))...)
			faults = append(faults, required(account.Name, at.Child("serviceAccount", "name"))...)
		}
	}
	return faults
}

// validateManifests finds what agents would refuse (docs/protocol.md, Refused
// specs).
func validateManifests(manifests []workv1.Manifest, path *field.Path) field.ErrorList {
	if len(manifests) == 0 {
		return field.ErrorList{field.Required(path, "a work needs at least one manifest")}
	}
	size := 0
	for i := range manifests {
		size += len(manifests[i].Raw)
	}
	if size > workv1.MaxManifestsSize {
		return field.ErrorList{field.TooLong(path, "", workv1.MaxManifestsSize)}
	}
	var faults field.ErrorList
	for i := range manifests {
		one := wire.Bundle{Manifests: manifests[i : i+1]}
		if err := one.Validate(); err != nil {
			// The path says which one it is.
			reason := strings.TrimPrefix(err.Error(), "manifest 0: ")
			faults = append(faults, field.Invalid(path.Index(i), field.OmitValueType{}, reason))
		}
	}
	return faults
}

func validateConfig(option *workv1.ManifestConfigOption, path *field.Path) field.ErrorList {
	identifier := path.Child("resourceIdentifier")
	faults := required(option.ResourceIdentifier.Resource, identifier.Child("resource"))
	faults = append(faults, required(option.ResourceIdentifier.Name, identifier.Child("name"))...)
	faults = append(faults, oneOf(option.FeedbackScrapeType, true, path.Child("feedbackScrapeType"),
		workv1.FeedbackScrapeTypePoll, workv1.FeedbackScrapeTypeWatch)...)
	if strategy := option.UpdateStrategy; strategy != nil {
		faults = append(faults, oneOf(strategy.Type, true, path.Child("updateStrategy", "type"),
			workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly,
			workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeReadOnly)...)
	}
	for i, rule := range option.FeedbackRules {
		at := path.Child("feedbackRules").Index(i)
		faults = append(faults, oneOf(rule.Type, false, at.Child("type"), workv1.WellKnownStatusType, workv1.JSONPathsType)...)
		for j, value := range rule.JsonPaths {
			faults = append(faults, required(value.Name, at.Child("jsonPaths").Index(j).Child("name"))...)
			faults = append(faults, required(value.Path, at.Child("jsonPaths").Index(j).Child("path"))...)
		}
	}
	for i, rule := range option.ConditionRules {
		at := path.Child("conditionRules").Index(i)
		faults = append(faults, oneOf(rule.Type, false, at.Child("type"),
			workv1.CelConditionExpressionsType, workv1.WellKnownConditionsType)...)
		if rule.Type == workv1.CelConditionExpressionsType {
			faults = append(faults, required(rule.Condition, at.Child("condition"))...)
		}
	}
	return faults
}

func required(value string, path *field.Path) field.ErrorList {
	if value != "" {
		return nil
	}
	return field.ErrorList{field.Required(path, "")}
}

func oneOf[T ~string](value T, optional bool, path *field.Path, known ...T) field.ErrorList {
	switch {
	case value == "" && optional, slices.Contains(known, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("one of %v", known))}
	default:
		return field.ErrorList{field.NotSupported(path, value, known)}
	}
}
