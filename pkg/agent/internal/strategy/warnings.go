package strategy

import (
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Warnings returns the mistakes in a spec that keep none of its manifests from being applied:
// options for a resource that is not among manifests, as Parse returned them. An option is left out
// as long as it may be for a manifest of unknown kind.
func Warnings(spec *workv1.ManifestWorkSpec, manifests []Manifest) []string {
	var warnings []string
	for i := range spec.ManifestConfigs {
		id, matched, hint := spec.ManifestConfigs[i].ResourceIdentifier, false, ""
		for j := range manifests {
			meta := manifests[j].Meta
			matched = matched || matches(id, meta) || meta.Resource == "" && mayMatch(id, meta)
			if id.Resource != meta.Resource && strings.EqualFold(id.Resource, meta.Kind) {
				hint = fmt.Sprintf("; resource must be %q", meta.Resource)
			}
		}
		if !matched {
			warnings = append(warnings, fmt.Sprintf("manifestConfigs[%d] for %s matches no manifest%s", i, describe(id), hint))
		}
	}
	return warnings
}

// mayMatch reports whether an option may be for a manifest whose resource is not known.
func mayMatch(id workv1.ResourceIdentifier, meta workv1.ManifestResourceMeta) bool {
	return meta.Kind == "" || id.Group == meta.Group && matchesPattern(id.Name, meta.Name)
}

// describe returns resource.group namespace/name.
func describe(id workv1.ResourceIdentifier) string {
	text := id.Resource
	if id.Group != "" {
		text += "." + id.Group
	}
	if id.Namespace != "" {
		return text + " " + id.Namespace + "/" + id.Name
	}
	return text + " " + id.Name
}

// DuplicateFields returns a warning for each field that a manifest has more than once. Its last
// value counts.
func DuplicateFields(from *workv1.Manifest) []string {
	var content map[string]any
	errs, err := kjson.UnmarshalStrict(from.Raw, &content, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil // Parse reports it
	}
	warnings := make([]string, 0, len(errs))
	for _, err := range errs {
		warnings = append(warnings, err.Error())
	}
	return warnings
}
