package strategy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// maxFieldManager is the number of characters that the API server takes.
const maxFieldManager = 128

// Manifest is one manifest of a spec, read, with the options that the spec sets
// for it. It is not changed after [Parse].
type Manifest struct {
	// Meta identifies the manifest in the work's status. What could not be found
	// out is empty.
	Meta workv1.ManifestResourceMeta
	// Ref names the object. It is zero if Err says that the kind is unknown or the
	// manifest can not be read.
	Ref object.Ref
	// Desired is the object to apply, without what is not for the cluster:
	// metadata.uid, managedFields, selfLink, options and null timestamps. A
	// Secret's stringData has become data. Nil if the manifest can not be read.
	Desired *unstructured.Unstructured
	// Hash tells whether two manifests for one object are the same: 16 hex digits
	// of the SHA-256 of Desired.
	Hash string
	// Owned says whether the object belongs to the work and goes with it, by the
	// work's deleteOption.
	Owned bool
	// Strategy says how it is written; never empty.
	Strategy workv1.UpdateStrategyType
	// Force takes fields over from other managers; for ServerSideApply.
	Force bool
	// FieldManager of every write for this manifest. Empty: the applier's.
	FieldManager string
	// FeedbackRules, FeedbackScrapeType and ConditionRules are those of the first
	// option that sets them.
	FeedbackRules      []workv1.FeedbackRule
	FeedbackScrapeType workv1.FeedbackScrapeType
	ConditionRules     []workv1.ConditionRule
	// Err says why the manifest can not be applied; nil if it can. Its text goes
	// into the condition. It wraps a *meta.NoKindMatchError for a kind that the
	// cluster does not serve (yet), and an *IgnoreFieldsError where ignoreFields can
	// not be processed.
	Err error

	ignore   *ignoring // nil without ignoreFields
	recreate bool      // allowed by annotation
}

// Recreates says whether applying may delete the object to create it anew: by the
// manifest's annotation, where the API server refuses a change as immutable.
func (m *Manifest) Recreates() bool { return m.recreate }

var (
	errNoObject     = errors.New("the manifest is not a JSON object; it needs apiVersion, kind and metadata.name")
	errNoKind       = errors.New("kind must be set in manifest")
	errNoAPIVersion = errors.New("apiVersion must be set in manifest")
	errNoName       = errors.New("name must be set in manifest")
	errGenerateName = errors.New("generateName must not be set in manifest")
	// errNoNamespace has the API server's own text for a request that leaves out
	// the namespace of a namespaced kind.
	errNoNamespace = errors.New("the server does not allow this method on the requested resource")
)

// IgnoreFieldsError is the Err of a manifest, or of its outcome, whose ignoreFields
// can not be processed. Its condition has a reason of its own,
// AppliedManifestSSAIgnoreFieldError.
type IgnoreFieldsError struct{ Err error }

// Error gives the text of Err.
func (e *IgnoreFieldsError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *IgnoreFieldsError) Unwrap() error { return e.Err }

// Parse reads the manifests of a spec, in its order, one result each. A manifest
// that can not be applied has Err set; the others are not affected. Resolve gives
// the resource of a kind; it is called once per manifest whose kind is readable.
func Parse(spec *workv1.ManifestWorkSpec, resolve func(schema.GroupVersionKind) (*meta.RESTMapping, error)) []Manifest {
	manifests := make([]Manifest, len(spec.Workload.Manifests))
	ignored := selections{}
	for i := range manifests {
		manifests[i] = parse(i, &spec.Workload.Manifests[i], resolve)
		configure(&manifests[i], spec, ignored)
	}
	refuseDuplicates(manifests)
	return manifests
}

// parse reads one manifest, without its options.
func parse(ordinal int, from *workv1.Manifest, resolve func(schema.GroupVersionKind) (*meta.RESTMapping, error)) Manifest {
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
	if m.Err = complete(desired); m.Err != nil {
		return m
	}
	mapping, err := resolve(kind)
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
	m.FieldManager, m.Err = clean(desired)
	m.Desired, m.Hash = desired, hash(desired)
	if m.Err == nil {
		m.recreate, m.Err = mayRecreate(desired)
	}
	if m.Err == nil && namespaced && m.Meta.Namespace == "" {
		m.Err = errNoNamespace
	}
	return m
}

// decode gives the JSON of a manifest, with numbers as int64 or float64.
func decode(from *workv1.Manifest) (map[string]any, error) {
	raw := from.Raw
	if raw == nil && from.Object != nil {
		var err error
		if raw, err = json.Marshal(from.Object); err != nil {
			return nil, fmt.Errorf("encode the manifest: %w", err)
		}
	}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, errNoObject
	}
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, fmt.Errorf("the manifest is not valid JSON: %w", err)
	}
	return content, nil
}

// complete says what a manifest lacks to name an object.
func complete(desired *unstructured.Unstructured) error {
	switch {
	case desired.GetKind() == "":
		return errNoKind
	case desired.GetAPIVersion() == "":
		return errNoAPIVersion
	case desired.GetGenerateName() != "":
		return errGenerateName
	case desired.GetName() == "":
		return errNoName
	}
	if _, err := schema.ParseGroupVersion(desired.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion: %w", err)
	}
	return nil
}

// clean takes out of a manifest what is not for the cluster, and gives the field
// manager that it names.
func clean(desired *unstructured.Unstructured) (fieldManager string, err error) {
	dropNullTimestamps(desired.Object)
	metadata, _ := desired.Object["metadata"].(map[string]any)
	for _, key := range []string{"uid", "creationTimestamp", "managedFields", "selfLink"} {
		delete(metadata, key)
	}
	if options, ok := metadata["options"]; ok {
		delete(metadata, "options")
		if fieldManager, err = declaredFieldManager(options); err != nil {
			return "", err
		}
	}
	return fieldManager, joinStringData(desired)
}

// dropNullTimestamps removes creationTimestamp: null, which encoders of typed
// objects leave behind, wherever it stands.
func dropNullTimestamps(value any) {
	switch value := value.(type) {
	case map[string]any:
		if timestamp, ok := value["creationTimestamp"]; ok && timestamp == nil {
			delete(value, "creationTimestamp")
		}
		for _, field := range value {
			dropNullTimestamps(field)
		}
	case []any:
		for _, item := range value {
			dropNullTimestamps(item)
		}
	}
}

// declaredFieldManager reads metadata.options, the declarative field manager.
func declaredFieldManager(options any) (string, error) {
	fields, ok := options.(map[string]any)
	if !ok {
		return "", errors.New("metadata.options must be an object")
	}
	value, ok := fields["fieldManager"]
	if !ok {
		return "", nil
	}
	manager, ok := value.(string)
	if !ok || manager == "" {
		return "", errors.New("metadata.options.fieldManager must be a string that is not empty")
	}
	return manager, validFieldManager("metadata.options.fieldManager", manager)
}

func validFieldManager(field, manager string) error {
	if length := utf8.RuneCountInString(manager); length > maxFieldManager {
		return fmt.Errorf("%s has %d characters; at most %d are allowed", field, length, maxFieldManager)
	}
	for _, char := range manager {
		if char == utf8.RuneError || !unicode.IsPrint(char) {
			return fmt.Errorf("%s %q has a character that is not printable", field, manager)
		}
	}
	return nil
}

// joinStringData turns a Secret's stringData into data, as the API server does
// on writing, so that the two can be compared with the live object.
func joinStringData(desired *unstructured.Unstructured) error {
	kind := desired.GroupVersionKind()
	plain, ok := desired.Object["stringData"].(map[string]any)
	if !ok || kind.Kind != "Secret" || kind.Group != "" {
		return nil
	}
	if desired.Object["data"] == nil {
		desired.Object["data"] = make(map[string]any, len(plain))
	}
	data, ok := desired.Object["data"].(map[string]any)
	if !ok {
		return errors.New("data must be an object")
	}
	for key, value := range plain {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("stringData.%s must be a string", key)
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		if other, ok := data[key]; ok && other != encoded {
			return fmt.Errorf("data.%s and stringData.%s contradict each other", key, key)
		}
		data[key] = encoded
	}
	delete(desired.Object, "stringData")
	return nil
}

func hash(desired *unstructured.Unstructured) string {
	canonical, err := json.Marshal(desired.Object) // sorts keys
	if err != nil {
		return "" // it was decoded from JSON
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])[:16]
}
