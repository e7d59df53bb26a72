package strategy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ignore"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// configure sets the options of the spec on a manifest: ownership, strategy and rules. Each of
// updateStrategy, feedbackRules (with their scrape type) and conditionRules comes as a whole from
// the first option that sets it.
func (m *Manifest) configure(spec *workv1.ManifestWorkSpec, compiled *compiledFields) {
	m.Owned = Owned(m.Meta, spec.DeleteOption)
	var strategy *workv1.UpdateStrategy
	for i := range spec.ManifestConfigs {
		option := &spec.ManifestConfigs[i]
		if !matches(option.ResourceIdentifier, m.Meta) {
			continue
		}
		if strategy == nil {
			strategy = option.UpdateStrategy
		}
		if m.FeedbackRules == nil && len(option.FeedbackRules) > 0 {
			m.FeedbackRules, m.FeedbackScrapeType = option.FeedbackRules, option.FeedbackScrapeType
		}
		if m.ConditionRules == nil && len(option.ConditionRules) > 0 {
			m.ConditionRules = option.ConditionRules
		}
	}
	if strategy == nil {
		return
	}
	if strategy.Type != "" {
		m.Strategy = strategy.Type
	}
	err := m.setStrategy(strategy)
	if err == nil && m.Err == nil && m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
		err = m.setIgnored(strategy, &spec.Workload.Manifests[m.Meta.Ordinal], compiled)
	}
	switch {
	case m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Hook != "":
		m.Err = errors.New("a hook is created by the agent: its update strategy must not be ReadOnly")
	case m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Desired != nil:
		m.Err = m.readOrder(m.Desired) // nothing else counts: it is not written
	case m.Err == nil:
		m.Err = err
	}
}

// setStrategy sets a strategy's options on the manifest, except for ignoreFields.
func (m *Manifest) setStrategy(strategy *workv1.UpdateStrategy) error {
	if strategy.MisplacedForce != nil {
		return errors.New("updateStrategy.force is no field: force belongs to the options of server-side apply; " +
			"move it to updateStrategy.serverSideApply.force")
	}
	switch m.Strategy {
	case workv1.UpdateStrategyTypeUpdate, workv1.UpdateStrategyTypeCreateOnly, workv1.UpdateStrategyTypeReadOnly:
		return nil
	case workv1.UpdateStrategyTypeServerSideApply:
	default:
		return fmt.Errorf("unknown update strategy %q: it must be Update, CreateOnly, ServerSideApply or ReadOnly", m.Strategy)
	}
	config := strategy.ServerSideApply
	if config == nil {
		return nil
	}
	m.Force = config.Force
	manager := config.FieldManager
	if err := validateFieldManager("serverSideApply.fieldManager", manager); err != nil {
		return err
	}
	// The hub's schema sets the default, so that the default does not contradict another value in
	// the manifest.
	if m.FieldManager == "" {
		m.FieldManager = manager
	} else if manager != "" && manager != workv1.DefaultFieldManager && manager != m.FieldManager {
		return fmt.Errorf("metadata.options.fieldManager %q and serverSideApply.fieldManager %q differ; set one of them, or both alike",
			m.FieldManager, manager)
	}
	return nil
}

// compiledFields caches the ignoreFields of a spec by strategy, which several manifests may share.
type compiledFields struct {
	budget *budget.Budget
	known  map[*workv1.UpdateStrategy]compileResult
}

type compileResult struct {
	fields *ignore.Fields
	err    error
}

// get returns the fields of a strategy.
func (c *compiledFields) get(strategy *workv1.UpdateStrategy) (*ignore.Fields, error) {
	result, ok := c.known[strategy]
	if !ok {
		result.fields, result.err = ignore.Compile(c.budget, strategy.ServerSideApply.IgnoreFields)
		c.known[strategy] = result
	}
	return result.fields, result.err
}

// rest is Ignored as it is kept, or why there is none.
type rest struct {
	content []byte // JSON of Rest
	hash    string
	err     error
}

// of returns what is kept as the Ignored of fields.
func (kept rest) of(fields *ignore.Fields) (*Ignored, error) {
	if kept.err != nil {
		return nil, kept.err
	}
	left := &unstructured.Unstructured{}
	return &Ignored{Fields: fields, Rest: left, Hash: kept.hash}, utiljson.Unmarshal(kept.content, &left.Object)
}

// setIgnored sets Ignored if the strategy has ignoreFields. From is the manifest as the spec has
// it.
func (m *Manifest) setIgnored(strategy *workv1.UpdateStrategy, from *workv1.Manifest, compiled *compiledFields) (err error) {
	if strategy.ServerSideApply == nil || len(strategy.ServerSideApply.IgnoreFields) == 0 {
		return nil
	}
	ignored, err := compiled.get(strategy)
	if err != nil {
		return &ignore.Error{Err: err}
	}
	b, key := compiled.budget, budget.Key{Manifest: m.Meta.Ordinal, Kind: budget.IgnoreFields}
	before := b.Left()
	if kept, ok := b.Kept(key, budget.State{}); ok {
		m.Ignored, err = kept.(rest).of(ignored)
	} else {
		m.Ignored, err = m.without(ignored, from)
		if b.Keeps() {
			result := rest{err: err}
			if err == nil {
				result.content, result.err = json.Marshal(m.Ignored.Rest.Object)
				result.hash = m.Ignored.Hash
			}
			b.Keep(key, budget.State{}, before, result, len(result.content))
		}
	}
	if ignore.Exceeded(err) {
		compiled.known[strategy] = compileResult{err: err} // do not use up the budget again
	}
	if err != nil {
		return &ignore.Error{Err: err}
	}
	m.Ignored.Digest = fields.Digest(m.Ignored.Rest.Object)
	return nil
}

// without evaluates ignored fields on a manifest as the spec has it.
func (m *Manifest) without(ignored *ignore.Fields, from *workv1.Manifest) (*Ignored, error) {
	content, err := decode(from)
	if err != nil {
		return nil, err
	}
	dropNullTimestamps(content)
	if content, err = ignored.Remove(content); err != nil {
		return nil, err
	}
	rest := &unstructured.Unstructured{Object: content}
	hash := ignore.Hash(rest)
	if _, err := clean(rest); err != nil {
		return nil, err
	}
	// The identity of the object cannot be ignored.
	rest.SetGroupVersionKind(m.Desired.GroupVersionKind())
	if _, ok := content["metadata"].(map[string]any); !ok {
		content["metadata"] = map[string]any{}
	}
	rest.SetName(m.Desired.GetName())
	rest.SetNamespace(m.Desired.GetNamespace())
	return &Ignored{Fields: ignored, Rest: rest, Hash: hash}, nil
}

// Owned reports whether an object is deleted with its work, as the work's deleteOption says, which
// may be nil.
func Owned(meta workv1.ManifestResourceMeta, option *workv1.DeleteOption) bool {
	orphaned, _ := Orphaned(meta, option, func(kind string) (bool, error) { return kind == meta.Kind, nil })
	return !orphaned
}

// MetaOf returns what names an object in statuses and rules, without its kind.
func MetaOf(ref object.Ref) workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{Group: ref.Group, Version: ref.Version, Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name}
}

// Orphaned reports whether an object, whose kind meta need not have, is left where its work is deleted, as the work's deleteOption
// says, which may be nil. An orphaning rule may name the resource by its plural or by its kind: isKind reports whether a name is
// that of its kind. It is asked only about rules for this object, and only if none of them names the plural; Orphaned returns its error.
func Orphaned(meta workv1.ManifestResourceMeta, option *workv1.DeleteOption, isKind func(name string) (bool, error)) (bool, error) {
	switch {
	case option == nil:
		return false, nil
	case option.PropagationPolicy == workv1.DeletePropagationPolicyTypeOrphan:
		return true, nil
	case option.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan || option.SelectivelyOrphan == nil:
		return false, nil
	}
	var names []string
	for _, rule := range option.SelectivelyOrphan.OrphaningRules {
		switch {
		case rule.Group != meta.Group || rule.Namespace != meta.Namespace || rule.Name != meta.Name:
		case rule.Resource == meta.Resource:
			return true, nil
		default:
			names = append(names, rule.Resource)
		}
	}
	for _, name := range names {
		if is, err := isKind(name); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// matches reports whether an option is for a manifest.
func matches(id workv1.ResourceIdentifier, meta workv1.ManifestResourceMeta) bool {
	return meta.Resource != "" && id.Group == meta.Group && id.Resource == meta.Resource &&
		matchesPattern(id.Namespace, meta.Namespace) && matchesPattern(id.Name, meta.Name)
}

// matchesPattern reports whether text matches pattern, in which each * stands for any characters.
func matchesPattern(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// rejectDuplicates sets Err on all but the last of several different manifests for one object:
// applied in turn they would undo each other forever. Manifests for server-side apply may share an
// object if their field managers differ.
func rejectDuplicates(manifests []Manifest) {
	type identity struct{ group, resource, namespace, name, manager string }
	last := make(map[identity]int, len(manifests))
	for i := len(manifests) - 1; i >= 0; i-- {
		m := &manifests[i]
		if m.Err != nil || m.Strategy == workv1.UpdateStrategyTypeReadOnly {
			continue
		}
		id := identity{group: m.Meta.Group, resource: m.Meta.Resource, namespace: m.Meta.Namespace, name: m.Meta.Name}
		if m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
			id.manager = m.Manager()
		}
		winner, taken := last[id]
		if !taken {
			last[id] = i
			continue
		}
		if manifests[winner].Hash != m.Hash {
			m.Err = fmt.Errorf("duplicate manifest for resource %s/%s with resource type %s.%s: manifest %d of the work is applied instead",
				m.Meta.Namespace, m.Meta.Name, m.Desired.GetAPIVersion(), m.Meta.Kind, winner)
		}
	}
}
