package strategy

import (
	"errors"
	"fmt"
	"strings"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// configure sets on a manifest what its work says about it: ownership, strategy,
// rules. Each of updateStrategy, feedbackRules (with their scrape type) and
// conditionRules comes whole from the first option that sets it.
func configure(m *Manifest, spec *workv1.ManifestWorkSpec, ignored selections) {
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
	err := m.adopt(strategy)
	if err == nil && m.Err == nil && m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
		err = m.adoptIgnored(strategy, &spec.Workload.Manifests[m.Meta.Ordinal], ignored)
	}
	switch {
	case m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Desired != nil:
		m.Err = nil // what is wrong with writing it does not matter
	case m.Err == nil:
		m.Err = err
	}
}

// adopt takes over a strategy's options.
func (m *Manifest) adopt(strategy *workv1.UpdateStrategy) error {
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
	if err := validFieldManager("serverSideApply.fieldManager", manager); err != nil {
		return err
	}
	// The hub's schema fills in the default, so that value says nothing against
	// another in the manifest itself.
	if m.FieldManager == "" {
		m.FieldManager = manager
	} else if manager != "" && manager != workv1.DefaultFieldManager && manager != m.FieldManager {
		return fmt.Errorf("metadata.options.fieldManager %q and serverSideApply.fieldManager %q differ; set one of them, or both alike",
			m.FieldManager, manager)
	}
	return nil
}

// adoptIgnored takes over a strategy's ignoreFields. From is the manifest as the
// spec has it.
func (m *Manifest) adoptIgnored(strategy *workv1.UpdateStrategy, from *workv1.Manifest, ignored selections) error {
	if strategy.ServerSideApply == nil || len(strategy.ServerSideApply.IgnoreFields) == 0 {
		return nil
	}
	present, err := ignored.of(strategy)
	if err == nil {
		m.ignore, err = ignore(from, m.Desired, present)
	}
	if errors.Is(err, errTooLong) {
		ignored[strategy] = selection{err: err} // once a pass is enough
	}
	if err != nil {
		return &IgnoreFieldsError{Err: err}
	}
	return nil
}

// Owned says whether an object goes with its work, by the work's deleteOption, which
// may be nil. A rule may name the resource
// by its plural or by its kind.
func Owned(meta workv1.ManifestResourceMeta, option *workv1.DeleteOption) bool {
	if option == nil {
		return true
	}
	switch option.PropagationPolicy {
	case workv1.DeletePropagationPolicyTypeOrphan:
		return false
	case workv1.DeletePropagationPolicyTypeSelectivelyOrphan:
	default:
		return true
	}
	if option.SelectivelyOrphan == nil {
		return true
	}
	for _, rule := range option.SelectivelyOrphan.OrphaningRules {
		if rule.Group == meta.Group && (rule.Resource == meta.Resource || rule.Resource == meta.Kind) &&
			rule.Namespace == meta.Namespace && rule.Name == meta.Name {
			return false
		}
	}
	return true
}

// matches says whether an option is for a manifest.
func matches(id workv1.ResourceIdentifier, meta workv1.ManifestResourceMeta) bool {
	return meta.Resource != "" && id.Group == meta.Group && id.Resource == meta.Resource &&
		matchesPattern(id.Namespace, meta.Namespace) && matchesPattern(id.Name, meta.Name)
}

// matchesPattern says whether text is pattern, in which each * stands for any
// run of characters.
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

// refuseDuplicates lets the last of several manifests for one object win, where
// they differ, and fails the others: applied in turn they would undo each other
// for ever. Server-side appliers with managers of their own may share an object.
func refuseDuplicates(manifests []Manifest) {
	type identity struct{ group, resource, namespace, name, manager string }
	last := make(map[identity]int, len(manifests))
	for i := len(manifests) - 1; i >= 0; i-- {
		m := &manifests[i]
		if m.Err != nil || m.Strategy == workv1.UpdateStrategyTypeReadOnly {
			continue
		}
		id := identity{group: m.Meta.Group, resource: m.Meta.Resource, namespace: m.Meta.Namespace, name: m.Meta.Name}
		if m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
			id.manager = m.FieldManager
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
