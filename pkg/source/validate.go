package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// nameMax is the maximum length of a work's name. The name of its AppliedManifestWork is a hash of
// 64 characters, a dash and the work's name, and at most 253 characters long.
const nameMax = 253 - 65

// normalizeManifests encodes manifests as they are stored and sent: as JSON without spaces and with
// sorted keys, so that equal specs are equal bytes. It does not change invalid JSON, which validate
// rejects.
func normalizeManifests(spec *workv1.ManifestWorkSpec) {
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

// validate returns the invalid fields of a work.
func (c *Client) validate(work *workv1.ManifestWork) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validation.ValidateObjectMeta(&work.ObjectMeta, true, validation.NameIsDNSSubdomain, meta)
	if len(work.Name) > nameMax {
		errs = append(errs, field.TooLong(meta.Child("name"), work.Name, nameMax))
	}
	if work.Namespace != "" {
		if _, err := c.topics.Specs(wire.ClusterName(work.Namespace)); err != nil {
			errs = append(errs, field.Invalid(meta.Child("namespace"), work.Namespace, err.Error()))
		}
	}
	return append(errs, validateSpec(&work.Spec, field.NewPath("spec"))...)
}

func validateSpec(spec *workv1.ManifestWorkSpec, path *field.Path) field.ErrorList {
	errs := validateManifests(spec.Workload.Manifests, path.Child("workload", "manifests"))
	if option := spec.DeleteOption; option != nil {
		errs = append(errs, oneOf(option.PropagationPolicy, true, path.Child("deleteOption", "propagationPolicy"),
			workv1.DeletePropagationPolicyTypeForeground, workv1.DeletePropagationPolicyTypeOrphan,
			workv1.DeletePropagationPolicyTypeSelectivelyOrphan)...)
	}
	for i := range spec.ManifestConfigs {
		errs = append(errs, validateConfig(&spec.ManifestConfigs[i], path.Child("manifestConfigs").Index(i))...)
	}
	if spec.Executor != nil {
		subject, at := spec.Executor.Subject, path.Child("executor", "subject")
		errs = append(errs, oneOf(subject.Type, false, at.Child("type"), workv1.ExecutorSubjectTypeServiceAccount)...)
		if account := subject.ServiceAccount; account == nil {
			errs = append(errs, field.Required(at.Child("serviceAccount"), ""))
		} else {
			errs = append(errs, required(account.Namespace, at.Child("serviceAccount", "namespace"))...)
			errs = append(errs, required(account.Name, at.Child("serviceAccount", "name"))...)
		}
	}
	return errs
}

// manifestsPath is the field whose size is limited.
const manifestsPath = "spec.workload.manifests"

// refused returns the error for a work with errs: RequestEntityTooLarge if its manifests are too large
// together, else Invalid. Its details have the fields.
func refused(name string, errs field.ErrorList) error {
	invalid := apierrors.NewInvalid(workKind, name, errs)
	for _, e := range errs {
		if e.Type == field.ErrorTypeTooLong && e.Field == manifestsPath {
			large := apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("ManifestWork %q: %v; spread its manifests over several works", name, e))
			large.ErrStatus.Details = invalid.ErrStatus.Details
			return large
		}
	}
	return invalid
}

// validateManifests returns what agents would refuse (docs/protocol.md, Refused specs).
func validateManifests(manifests []workv1.Manifest, path *field.Path) field.ErrorList {
	if len(manifests) == 0 {
		return field.ErrorList{field.Required(path, "a work needs at least one manifest")}
	}
	if len(manifests) > wire.MaxManifests {
		return field.ErrorList{field.TooMany(path, len(manifests), wire.MaxManifests)}
	}
	size := 0
	for i := range manifests {
		size += len(manifests[i].Raw)
	}
	if size > workv1.MaxManifestsSize {
		return field.ErrorList{field.TooLong(path, "", workv1.MaxManifestsSize)}
	}
	var errs field.ErrorList
	for i := range manifests {
		one := wire.Bundle{Manifests: manifests[i : i+1]}
		if err := one.Validate(); err != nil {
			// The path contains the index already.
			reason := strings.TrimPrefix(err.Error(), "manifest 0: ")
			errs = append(errs, field.Invalid(path.Index(i), field.OmitValueType{}, reason))
		}
	}
	return errs
}

func validateConfig(option *workv1.ManifestConfigOption, path *field.Path) field.ErrorList {
	identifier := path.Child("resourceIdentifier")
	errs := required(option.ResourceIdentifier.Resource, identifier.Child("resource"))
	errs = append(errs, required(option.ResourceIdentifier.Name, identifier.Child("name"))...)
	errs = append(errs, oneOf(option.FeedbackScrapeType, true, path.Child("feedbackScrapeType"),
		workv1.FeedbackScrapeTypePoll, workv1.FeedbackScrapeTypeWatch)...)
	if strategy := option.UpdateStrategy; strategy != nil {
		errs = append(errs, oneOf(strategy.Type, true, path.Child("updateStrategy", "type"),
			workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly,
			workv1.UpdateStrategyTypeServerSideApply, workv1.UpdateStrategyTypeReadOnly)...)
	}
	for i, rule := range option.FeedbackRules {
		at := path.Child("feedbackRules").Index(i)
		errs = append(errs, oneOf(rule.Type, false, at.Child("type"), workv1.WellKnownStatusType, workv1.JSONPathsType)...)
		for j, value := range rule.JsonPaths {
			errs = append(errs, required(value.Name, at.Child("jsonPaths").Index(j).Child("name"))...)
			errs = append(errs, required(value.Path, at.Child("jsonPaths").Index(j).Child("path"))...)
		}
	}
	for i, rule := range option.ConditionRules {
		at := path.Child("conditionRules").Index(i)
		errs = append(errs, oneOf(rule.Type, false, at.Child("type"),
			workv1.CelConditionExpressionsType, workv1.WellKnownConditionsType)...)
		if rule.Type == workv1.CelConditionExpressionsType {
			errs = append(errs, required(rule.Condition, at.Child("condition"))...)
		}
	}
	return errs
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

// Check normalizes the manifests of a work as the client does, and returns a StatusError of reason
// Invalid that names each invalid field, or RequestEntityTooLarge. It is for programs that send works without a client.
func Check(work *workv1.ManifestWork, topics wire.SourceTopics) error {
	normalizeManifests(&work.Spec)
	if errs := (&Client{topics: topics}).validate(work); len(errs) > 0 {
		return refused(work.Name, errs)
	}
	return nil
}
