package overrides

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/expression"
)

// Compiler compiles rules. It is safe for concurrent use.
type Compiler struct{ expressions *expression.Compiler }

// NewCompiler returns a Compiler. It takes some milliseconds.
func NewCompiler() (*Compiler, error) {
	expressions, err := expression.New(MaxCost, cel.Variable("cluster", cel.DynType), expression.JSON(), expression.Versions())
	if err != nil {
		return nil, fmt.Errorf("overrides: %w", err)
	}
	return &Compiler{expressions}, nil
}

// Compile returns the rules of the overrides of one set. It never fails: a rule that is wrong is an error for the
// clusters that it selects, or for all if its selector is wrong. list is not changed, and must not be changed
// while the rules are in use.
func (c *Compiler) Compile(list []*workwirev1alpha1.WorkOverride) *Rules {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *workwirev1alpha1.WorkOverride) int { return cmp.Compare(a.Name, b.Name) })
	run := compilation{expressions: c.expressions, programs: make(map[string]*expression.Program)}
	rules := &Rules{}
	for _, override := range list {
		for i := range override.Spec.Rules {
			rules.rules = append(rules.rules, run.rule(override.Name, i, &override.Spec.Rules[i]))
		}
	}
	return rules
}

// compilation is the state of one Compile.
type compilation struct {
	expressions *expression.Compiler
	programs    map[string]*expression.Program // by text
	length      int                            // of their texts
}

func (c *compilation) rule(override string, i int, of *workwirev1alpha1.OverrideRule) rule {
	r := rule{override: override, name: cmp.Or(of.Name, strconv.Itoa(i+1)), names: of.Clusters.Names}
	var errLabels, errClaims error
	r.labels, errLabels = selector("labelSelector", of.Clusters.LabelSelector)
	r.claims, errClaims = selector("claimSelector", of.Clusters.ClaimSelector)
	r.err = errors.Join(errLabels, errClaims)
	if len(of.Patches) == 0 {
		r.err = errors.Join(r.err, errors.New("it has no patches"))
	}
	for j := range of.Patches {
		p, err := c.patch(&of.Patches[j])
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("patch %d: %w", j+1, err))
		}
		r.patches = append(r.patches, p)
	}
	return r
}

// selector returns the selector of a field, nil if it is absent or wrong.
func selector(field string, of *metav1.LabelSelector) (labels.Selector, error) {
	if of == nil {
		return nil, nil
	}
	s, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return s, nil
}

func (c *compilation) patch(of *workwirev1alpha1.OverridePatch) (patch, error) {
	p := patch{target: of.Target}
	if of.Target.Kind == "" {
		return p, errors.New("its target has no kind")
	}
	if len(of.JSON) == 0 && of.Merge == nil {
		return p, errors.New("it has neither json nor merge")
	}
	for i := range of.JSON {
		o := operation{of: &of.JSON[i]}
		if err := checkOperation(o.of); err != nil {
			return p, fmt.Errorf("operation %d: %w", i+1, err)
		}
		if takesValue[o.of.Op] {
			var err error
			if o.value, err = c.value(&o.of.OverrideValue); err != nil {
				return p, fmt.Errorf("operation %d: %w", i+1, err)
			}
		}
		p.operations = append(p.operations, o)
	}
	if of.Merge == nil {
		return p, nil
	}
	var err error
	if p.merge, err = c.value(of.Merge); err != nil {
		return p, fmt.Errorf("merge: %w", err)
	}
	return p, nil
}

// takesValue is the operations of a JSON patch, and whether they have a value.
var takesValue = map[string]bool{"add": true, "replace": true, "test": true, "remove": false, "move": false, "copy": false}

func checkOperation(o *workwirev1alpha1.OverrideOperation) error {
	withValue, known := takesValue[o.Op]
	switch withFrom := o.Op == "move" || o.Op == "copy"; {
	case !known:
		return fmt.Errorf("%.20q must be add, remove, replace, move, copy or test", o.Op)
	case !strings.HasPrefix(o.Path, "/"):
		return fmt.Errorf("the path %.100q must begin with /", o.Path)
	case withFrom != strings.HasPrefix(o.From, "/"):
		return errors.New("move and copy, and no others, have a from, which begins with /")
	case !withValue && sources(&o.OverrideValue) > 0:
		return fmt.Errorf("%s has no value", o.Op)
	}
	return nil
}

// sources returns how many sources a value has.
func sources(v *workwirev1alpha1.OverrideValue) int {
	n := 0
	for _, set := range []bool{v.Value != nil, v.Expression != "", v.ConfigMap != nil, v.Secret != nil} {
		if set {
			n++
		}
	}
	return n
}

// value compiles a value, each expression once.
func (c *compilation) value(of *workwirev1alpha1.OverrideValue) (*value, error) {
	v := &value{of: of}
	if n := sources(of); n != 1 {
		return nil, fmt.Errorf("it has %d of value, expression, configMap and secret, and must have one (for null: the expression null)", n)
	}
	if of.Expression == "" {
		return v, nil
	}
	if v.program = c.programs[of.Expression]; v.program != nil {
		return v, nil
	}
	c.length += len(of.Expression)
	if len(c.programs) == MaxExpressions || c.length > expression.MaxLength {
		return nil, fmt.Errorf("the overrides of a set have at most %d expressions of %d characters in all", MaxExpressions, expression.MaxLength)
	}
	var err error
	if v.program, err = c.expressions.Compile(of.Expression); err != nil {
		return nil, fmt.Errorf("expression %.100q: %w", of.Expression, firstLine(err))
	}
	c.programs[of.Expression] = v.program
	return v, nil
}

// firstLine returns err, with [expression.Fault] of its text.
func firstLine(err error) error {
	if text := expression.Fault(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
