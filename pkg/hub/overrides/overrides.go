// Package overrides evaluates WorkOverrides: it returns the spec that the work of one cluster has by the
// template of a ManifestWorkReplicaSet and the overrides of the set.
//
//	compiler, err := overrides.NewCompiler()
//	...
//	rules := compiler.Compile(list)
//	spec, err := rules.Render(&set.Spec.ManifestWorkTemplate, cluster, values)
//
// It does no I/O: the values of ConfigMaps and Secrets come from a function of the caller. What it reads
// nobody vouches for. Expressions have the budgets of package expression, and no result is larger than a
// work may be.
package overrides

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/expression"
)

// Limits of the overrides of one set.
const (
	// MaxExpressions is the number of expressions, which are together at most [expression.MaxLength] long:
	// compiling them takes time too.
	MaxExpressions = 64
	// MaxCost is what all expressions may cost for one cluster, in the units of [expression].
	MaxCost = 200_000
	// MaxTime limits the same, in case the cost underestimates it, and what patches take.
	MaxTime = 5 * time.Second
)

// Rules are the rules of the overrides of one set, in their order. They are safe for concurrent use.
type Rules struct{ rules []rule }

// rule is a compiled rule.
type rule struct {
	override, name string // that name it in errors; name is the number if it has none
	names          []string
	labels, claims labels.Selector // nil: all
	patches        []patch
	err            error // why it cannot be evaluated for any cluster that it selects
}

// patch is a compiled patch.
type patch struct {
	target     workwirev1alpha1.OverrideTarget
	operations []operation
	merge      *value
}

// operation is an operation of a JSON patch.
type operation struct {
	of    *workwirev1alpha1.OverrideOperation
	value *value // nil for one without
}

// value is a value whose expression is compiled.
type value struct {
	of      *workwirev1alpha1.OverrideValue
	program *expression.Program
}

// Error is why the spec of a cluster cannot be rendered.
type Error struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Override is the name of the WorkOverride, empty if the template is at fault, and Rule the name of its rule or, if that has none, the number.
	Override, Rule string
	// Where is the patch, the operation and the expression, as far as one is at fault.
	Where string
	// Err is the cause.
	Err error
}

// Error names the cluster, the rule, and what of it is at fault.
func (e *Error) Error() string { return "cluster " + e.Cluster + ": " + e.Reason() }

// Reason is Error without the cluster.
func (e *Error) Reason() string {
	var texts []string
	if e.Override != "" {
		texts = append(texts, fmt.Sprintf("WorkOverride %s, rule %s", e.Override, e.Rule))
	}
	if e.Where != "" {
		texts = append(texts, e.Where)
	}
	return strings.Join(append(texts, e.Err.Error()), ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reference names a ConfigMap or Secret in the namespace of a set.
type Reference struct {
	Kind Kind
	Name string
}

// Kind is ConfigMap or Secret.
type Kind string

// The kinds of a Reference.
const (
	ConfigMap Kind = "ConfigMap"
	Secret    Kind = "Secret"
)

// Values returns the value of a key. Its errors name no values.
type Values func(from Reference, key string) (string, error)

// References returns what the rules refer to, sorted, each once.
func (r *Rules) References() []Reference {
	var all []Reference
	add := func(v *value) {
		if v != nil {
			if from, _, ok := v.reference(""); ok {
				all = append(all, from)
			}
		}
	}
	for _, rule := range r.rules {
		for _, p := range rule.patches {
			for _, o := range p.operations {
				add(o.value)
			}
			add(p.merge)
		}
	}
	slices.SortFunc(all, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return slices.Compact(all)
}

// Render returns the spec of the work of a cluster. It shares what no rule changes with the template, and is
// the template if no rule selects the cluster. The error is an [Error]. values may be nil if there are no
// [Rules.References].
func (r *Rules) Render(template *workv1.ManifestWorkSpec, cluster *clusterv1.ManagedCluster, values Values) (*workv1.ManifestWorkSpec, error) {
	var run *rendering
	for i := range r.rules {
		rule := &r.rules[i]
		if !rule.selects(cluster) {
			continue
		}
		if rule.err != nil {
			return nil, &Error{Cluster: cluster.Name, Override: rule.override, Rule: rule.name, Err: rule.err}
		}
		if run == nil {
			var err error
			if run, err = newRendering(template, cluster, values); err != nil {
				return nil, &Error{Cluster: cluster.Name, Err: err}
			}
		}
		if where, err := run.apply(rule); err != nil {
			return nil, &Error{Cluster: cluster.Name, Override: rule.override, Rule: rule.name, Where: where, Err: err}
		}
	}
	if run == nil {
		return template, nil
	}
	return run.spec(template), nil
}

// selects reports whether the rule is for a cluster.
func (r *rule) selects(cluster *clusterv1.ManagedCluster) bool {
	if len(r.names) > 0 && !slices.Contains(r.names, cluster.Name) || r.labels != nil && !r.labels.Matches(labels.Set(cluster.Labels)) {
		return false
	}
	if r.claims == nil {
		return true
	}
	return r.claims.Matches(labels.Set(claims(cluster)))
}

// rendering is the state of one Render.
type rendering struct {
	cluster   *clusterv1.ManagedCluster
	values    Values
	variable  map[string]any // for expressions; nil before the first
	budget    uint64         // that expressions have left
	until     time.Time      // when all must have ended
	manifests []manifest
	size      int // of all manifests
}

// manifest is a manifest on its way.
type manifest struct {
	raw      []byte
	identity identity
	patched  bool
}

// identity is what targets select by.
type identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

func newRendering(template *workv1.ManifestWorkSpec, cluster *clusterv1.ManagedCluster, values Values) (*rendering, error) {
	r := &rendering{
		cluster: cluster, values: values, budget: MaxCost, until: time.Now().Add(MaxTime),
		manifests: make([]manifest, len(template.Workload.Manifests)),
	}
	for i := range r.manifests {
		m := &r.manifests[i]
		m.raw = template.Workload.Manifests[i].Raw
		r.size += len(m.raw)
		if err := json.Unmarshal(m.raw, &m.identity); err != nil {
			return nil, fmt.Errorf("manifest %d of the template is no object of Kubernetes", i)
		}
	}
	return r, nil
}

// spec returns the template with the rendered manifests.
func (r *rendering) spec(template *workv1.ManifestWorkSpec) *workv1.ManifestWorkSpec {
	spec := *template
	spec.Workload.Manifests = slices.Clone(template.Workload.Manifests)
	for i, m := range r.manifests {
		if m.patched {
			spec.Workload.Manifests[i] = workv1.Manifest{RawExtension: runtime.RawExtension{Raw: m.raw}}
		}
	}
	return &spec
}

// apply applies the patches of a rule. If one fails, it returns which, and why.
func (r *rendering) apply(rule *rule) (where string, err error) {
	for i, p := range rule.patches {
		found := false
		for j := range r.manifests {
			m := &r.manifests[j]
			if !m.identity.isTarget(&p.target) {
				continue
			}
			found = true
			if where, err := r.patch(m, &p); err != nil {
				return strings.TrimSuffix(fmt.Sprintf("patch %d of %s %s, %s", i+1, m.identity.Kind, m.identity.Metadata.Name, where), ", "), err
			}
		}
		if !found {
			return "patch " + strconv.Itoa(i+1), fmt.Errorf("no manifest is %s", describe(&p.target))
		}
	}
	return "", nil
}

// isTarget reports whether a target selects a manifest.
func (i *identity) isTarget(t *workwirev1alpha1.OverrideTarget) bool {
	group, _, grouped := strings.Cut(i.APIVersion, "/")
	if !grouped {
		group = "core"
	}
	return i.Kind == t.Kind && (t.Group == "" || t.Group == group) && (t.Name == "" || t.Name == i.Metadata.Name) &&
		(t.Namespace == "" || t.Namespace == i.Metadata.Namespace)
}

// describe returns "Deployment.apps shop/web" of a target.
func describe(t *workwirev1alpha1.OverrideTarget) string {
	text := t.Kind
	if t.Group != "" {
		text += "." + t.Group
	}
	name := cmp.Or(t.Name, "*")
	if t.Namespace != "" {
		name = t.Namespace + "/" + name
	}
	return text + " " + name
}

// patch applies a patch to a manifest. If it fails, it returns the operation and the expression.
func (r *rendering) patch(m *manifest, p *patch) (where string, err error) {
	before, raw := len(m.raw), m.raw
	for i := range p.operations {
		o := &p.operations[i]
		at := fmt.Sprintf("operation %d (%s %.100s)", i+1, o.of.Op, o.of.Path)
		if err := r.checkTime(); err != nil {
			return at, err
		}
		var operand []byte
		if o.value != nil {
			if operand, err = r.evaluate(o.value, false); err != nil {
				return at + o.value.describe(), err
			}
		}
		if raw, err = operate(raw, o.of, operand); err != nil {
			return at, err
		}
		if err := r.checkSize(len(raw) - before); err != nil {
			return at, err
		}
	}
	if p.merge != nil {
		const at = "merge"
		if err := r.checkTime(); err != nil {
			return at, err
		}
		operand, err := r.evaluate(p.merge, true)
		if err != nil {
			return at + p.merge.describe(), err
		}
		if raw, err = merge(raw, operand); err != nil {
			return at, err
		}
	}
	if raw, err = normalized(raw); err != nil {
		return "", err
	}
	if err := r.checkSize(len(raw) - before); err != nil {
		return "", err
	}
	of := identity{}
	if err := json.Unmarshal(raw, &of); err != nil || of.APIVersion == "" || of.Kind == "" || of.Metadata.Name == "" {
		return "", fmt.Errorf("the result has no apiVersion, kind and metadata.name")
	}
	m.raw, m.identity, m.patched = raw, of, true
	r.size += len(raw) - before
	return "", nil
}

// checkTime fails if the rendering takes too long: each operation is a pass over the manifest.
func (r *rendering) checkTime() error {
	if time.Now().After(r.until) {
		return fmt.Errorf("the overrides take more than %v for one cluster", MaxTime)
	}
	return nil
}

// checkSize fails if the manifests would be too large with so many bytes more.
func (r *rendering) checkSize(more int) error {
	if r.size+more > workv1.MaxManifestsSize && more > 0 {
		return fmt.Errorf("the manifests would have more than the %d bytes that a work may have", workv1.MaxManifestsSize)
	}
	return nil
}

// normalized returns a manifest as the API server returns it, so that what is stored is the same bytes.
func normalized(raw []byte) ([]byte, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, fmt.Errorf("the result is no object")
	}
	return json.Marshal(object)
}
