// Package strategy reads the manifests of a work and the options that its spec sets for them:
// update strategy, ignoreFields, ownership and rules. [Parse] returns one [Manifest] each; [Ranks]
// returns the order in which they are applied.
//
// The packages below it carry the update strategies out. Imports go one way:
//
//	apply      makes the requests
//	plan       decides: pure, without a client
//	strategy   manifests and options
//	ignore     ignoreFields of server-side apply
//	ownership  owner references and managedFields
//	fields     comparing and merging JSON
//
// Each imports only packages below it in this list.
package strategy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ignore"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Manifest is one manifest of a spec with the options that the spec sets for it. It is not changed
// after [Parse].
type Manifest struct {
	// Meta identifies the manifest in the work's status. Unknown fields are empty.
	Meta workv1.ManifestResourceMeta
	// Ref names the object. It is zero if the manifest cannot be read or the cluster does not serve
	// its kind.
	Ref object.Ref
	// Desired is the object to apply, without the fields that are not for the cluster:
	// metadata.uid, managedFields, selfLink, options and null timestamps. A Secret's stringData is
	// merged into data. Nil if the manifest cannot be read.
	Desired *unstructured.Unstructured
	// Hash is the digest of Desired: 16 hex digits of its SHA-256. Two manifests for one object are
	// the same if their hashes are.
	Hash string
	// Owned reports whether the object belongs to the work and is deleted with it, as the work's
	// deleteOption says.
	Owned bool
	// Strategy is the update strategy; never empty.
	Strategy workv1.UpdateStrategyType
	// Force takes fields over from other managers; for ServerSideApply.
	Force bool
	// FieldManager that the manifest or the spec names, see Manager.
	FieldManager string
	// Ignored is set if the manifest has ignoreFields; for ServerSideApply.
	Ignored *Ignored
	// RecreateOnImmutable allows the object to be deleted and created again when the API server
	// refuses an update because fields are immutable. An annotation sets it.
	RecreateOnImmutable bool
	// Wave and Hook, HookBefore or HookAfter, place the manifest among the others of its work. Annotations set them.
	Wave int
	Hook string
	// Run is the run that a hook's Job belongs to; a Job of another run is deleted first. The caller of [Parse] sets it.
	Run string
	// FeedbackRules, FeedbackScrapeType and ConditionRules are those of the first option that sets
	// them.
	FeedbackRules      []workv1.FeedbackRule
	FeedbackScrapeType workv1.FeedbackScrapeType
	ConditionRules     []workv1.ConditionRule
	// Err is the reason why the manifest cannot be applied, nil if it can. Its text goes into the
	// condition. It wraps a *meta.NoKindMatchError for a kind that the cluster does not serve, and
	// an *ignore.Error for invalid ignoreFields.
	Err error
}

// Ignored is a manifest's ignoreFields and the rest of the manifest.
type Ignored struct {
	// Fields are sent only when the object is created; nil if there are none.
	Fields *ignore.Fields
	// Rest is the manifest without Fields.
	Rest *unstructured.Unstructured
	// Hash of Rest, as in the annotation config-spec-hash. Different manifests may have the same.
	Hash string
	// Digest of Rest, as [Manifest.Hash] is that of Desired.
	Digest string
}

// Mapping returns the resource that serves a kind.
type Mapping func(schema.GroupVersionKind) (*meta.RESTMapping, error)

// Manager returns the field manager of every write for the manifest.
func (m *Manifest) Manager() string { return cmp.Or(m.FieldManager, workv1.DefaultFieldManager) }

// Kind returns the kind of the manifest.
func (m *Manifest) Kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.Meta.Group, Version: m.Meta.Version, Kind: m.Meta.Kind}
}

// Parse returns the manifests of a spec, in its order. A manifest that cannot be applied has Err
// set and does not affect the others; if b is deferred, those after it are not read. Mapping is called once for each manifest whose kind is
// readable. The expressions of ignoreFields spend from b, which may be nil, also those of the manifests returned.
func Parse(b *budget.Budget, spec *workv1.ManifestWorkSpec, mapping Mapping) []Manifest {
	manifests := make([]Manifest, len(spec.Workload.Manifests))
	compiled := &compiledFields{budget: b, known: map[*workv1.UpdateStrategy]compileResult{}}
	for i := 0; i < len(manifests) && !b.Deferred(); i++ {
		manifests[i] = parse(i, &spec.Workload.Manifests[i], mapping)
		manifests[i].configure(spec, compiled)
	}
	rejectDuplicates(manifests)
	return manifests
}

// parse reads one manifest, without its options.
func parse(ordinal int, from *workv1.Manifest, mappingFor Mapping) Manifest {
	m := Manifest{
		Meta:     workv1.ManifestResourceMeta{Ordinal: int32(ordinal)}, // a spec has at most 500 KiB
		Strategy: workv1.UpdateStrategyTypeUpdate,
		Owned:    true,
	}
	content, err := decode(from)
	if err != nil {
		m.Err = err
		return m
	}
	desired := &unstructured.Unstructured{Object: content}
	kind := desired.GroupVersionKind()
	m.Meta.Group, m.Meta.Version, m.Meta.Kind = kind.Group, kind.Version, kind.Kind
	m.Meta.Name, m.Meta.Namespace = desired.GetName(), desired.GetNamespace()
	if m.Err = validateIdentity(desired); m.Err != nil {
		return m
	}
	invalidOrder := m.readOrder(desired)
	mapping, err := mappingFor(kind)
	if err != nil {
		m.Err = err
		return m
	}
	m.Meta.Resource = mapping.Resource.Resource
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	if !namespaced {
		m.Meta.Namespace = ""
		desired.SetNamespace("")
	}
	m.Ref = object.Ref{GroupVersionResource: mapping.Resource, Namespace: m.Meta.Namespace, Name: m.Meta.Name}
	if wire.TooDeep(from.Raw) { // it has a Ref: the object that it had stays
		m.Err = fmt.Errorf("the manifest is nested deeper than %d levels", wire.MaxManifestDepth)
		return m
	}
	m.FieldManager, m.Err = clean(desired)
	m.Desired, m.Hash = desired, fields.Digest(desired.Object)
	if m.Err == nil {
		m.RecreateOnImmutable, m.Err = recreateOnImmutable(desired)
	}
	if m.Err == nil {
		m.Err = invalidOrder
	}
	if m.Err == nil && namespaced && m.Meta.Namespace == "" {
		// The API server's text for a request without the namespace of a namespaced kind, and what to do.
		m.Err = fmt.Errorf("the server does not allow this method on the requested resource: %s has no metadata.namespace, "+
			"and no default applies; add it to the manifest", m.Meta.Kind)
	}
	return m
}

// decode returns the JSON of a manifest, with numbers as int64 or float64.
func decode(from *workv1.Manifest) (map[string]any, error) {
	if trimmed := bytes.TrimSpace(from.Raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, errors.New("the manifest is not a JSON object; it needs apiVersion, kind and metadata.name")
	}
	var content map[string]any
	if err := utiljson.Unmarshal(from.Raw, &content); err != nil {
		return nil, fmt.Errorf("the manifest is not valid JSON: %w", err)
	}
	return content, nil
}

// validateIdentity checks that a manifest names an object.
func validateIdentity(desired *unstructured.Unstructured) error {
	switch {
	case desired.GetKind() == "":
		return errors.New("kind must be set in manifest")
	case desired.GetAPIVersion() == "":
		return errors.New("apiVersion must be set in manifest")
	case desired.GetGenerateName() != "":
		return errors.New("generateName must not be set in manifest")
	case desired.GetName() == "":
		return errors.New("name must be set in manifest")
	}
	gv, err := schema.ParseGroupVersion(desired.GetAPIVersion())
	if err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	// Both become parts of the path of requests, where ".." would lead elsewhere.
	faults := validation.IsDNS1035Label(gv.Version)
	if gv.Group != "" {
		faults = append(validation.IsDNS1123Subdomain(gv.Group), faults...)
	}
	if len(faults) > 0 {
		return fmt.Errorf("apiVersion %q: %s", desired.GetAPIVersion(), strings.Join(faults, "; "))
	}
	return nil
}
