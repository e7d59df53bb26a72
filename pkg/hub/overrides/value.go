package overrides

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/expression"
	"github.com/workwire/workwire/pkg/runtime/yamlfile"
)

// clusterPlaceholder is the name of the cluster in a key.
const clusterPlaceholder = "{cluster}"

// describe returns the expression of a value for errors.
func (v *value) describe() string {
	if v.program == nil {
		return ""
	}
	return fmt.Sprintf(", expression %.100q", v.of.Expression)
}

// reference returns the ConfigMap or Secret of a value and the key for a cluster; false if it has none.
func (v *value) reference(cluster string) (from Reference, key string, ok bool) {
	kind, of := ConfigMap, v.of.ConfigMap
	if of == nil {
		kind, of = Secret, v.of.Secret
	}
	if of == nil {
		return Reference{}, "", false
	}
	return Reference{kind, of.Name}, strings.ReplaceAll(cmp.Or(of.Key, clusterPlaceholder), clusterPlaceholder, cluster), true
}

// ValueOf returns the value of a key of the data of from, for [Values]; exists says whether from exists. Its errors name no values.
func ValueOf(data map[string]string, exists bool, from Reference, key string) (string, error) {
	if !exists {
		return "", fmt.Errorf("%s %s does not exist", from.Kind, from.Name)
	}
	text, ok := data[key]
	if !ok {
		return "", fmt.Errorf("%s %s has no key %s", from.Kind, from.Name, key)
	}
	return text, nil
}

// evaluate returns a value as JSON. The text of a ConfigMap or Secret is a string or, for an object, YAML.
func (r *rendering) evaluate(v *value, object bool) ([]byte, error) {
	if v.program != nil {
		return r.run(v.program)
	}
	from, key, isReference := v.reference(r.cluster.Name)
	if !isReference {
		return v.of.Value.Raw, nil
	}
	if r.values == nil {
		_, err := ValueOf(nil, false, from, key)
		return nil, err
	}
	text, err := r.values(from, key)
	if err != nil {
		return nil, err
	}
	if !object {
		return json.Marshal(text)
	}
	raw, err := yamlfile.ToJSON([]byte(text))
	if err != nil { // which may quote a Secret
		return nil, fmt.Errorf("the key %s of %s %s is no YAML", key, from.Kind, from.Name)
	}
	return raw, nil
}

// run evaluates an expression.
func (r *rendering) run(program *expression.Program) ([]byte, error) {
	if r.variable == nil {
		r.variable = variableOf(r.cluster)
	}
	ctx := expression.Until(context.Background(), r.until)
	result, cost, err := program.Run(ctx, map[string]any{"cluster": r.variable}, r.budget)
	r.budget -= min(cost, r.budget)
	switch {
	case r.budget == 0, err != nil && ctx.Err() != nil:
		return nil, errors.New("the expressions cost too much for one cluster")
	case err != nil:
		return nil, firstLine(err)
	}
	e := encoder{left: workv1.MaxManifestsSize}
	plain, err := e.plain(result)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// variableOf returns the variable cluster of expressions.
func variableOf(c *clusterv1.ManagedCluster) map[string]any {
	return map[string]any{
		"name": c.Name, "labels": plainMap(c.Labels), "annotations": plainMap(clusterv1.SteadyAnnotations(c)), "claims": claims(c),
		"version": c.Status.Version.Kubernetes, "capacity": c.Status.Capacity.Texts(), "allocatable": c.Status.Allocatable.Texts(),
	}
}

// plainMap returns an empty map for nil, which CEL has as null.
func plainMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func claims(c *clusterv1.ManagedCluster) map[string]string {
	all := make(map[string]string, len(c.Status.ClusterClaims))
	for _, claim := range c.Status.ClusterClaims {
		all[claim.Name] = claim.Value
	}
	return all
}

// SameCluster reports whether rules cannot distinguish two states of a cluster.
func SameCluster(a, b *clusterv1.ManagedCluster) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) && maps.Equal(clusterv1.SteadyAnnotations(a), clusterv1.SteadyAnnotations(b)) &&
		slices.Equal(a.Status.ClusterClaims, b.Status.ClusterClaims) && a.Status.Version == b.Status.Version &&
		apiequality.Semantic.DeepEqual(a.Status.Capacity, b.Status.Capacity) && apiequality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// encoder converts values of expressions. Lists that share their items are cheap for an expression, however
// large they are when written out: left is how many bytes more the result may have, about.
type encoder struct{ left int }

func (e *encoder) plain(v ref.Val) (any, error) {
	e.left--
	if e.left < 0 {
		return nil, fmt.Errorf("it returns more than the %d bytes that a work may have", workv1.MaxManifestsSize)
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Uint, types.Double:
		return v.Value(), nil
	case types.String:
		e.left -= len(v)
		return string(v), nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, errors.New("it returns an optional without a value: add .orValue(...)")
		}
		return e.plain(v.GetValue())
	case traits.Mapper:
		return e.object(v)
	case traits.Lister:
		list := []any{}
		for each := v.Iterator(); each.HasNext() == types.True; {
			item, err := e.plain(each.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	return nil, fmt.Errorf("it returns a %s, which JSON has not: use string(...)", v.Type().TypeName())
}

func (e *encoder) object(v traits.Mapper) (any, error) {
	object := map[string]any{}
	for each := v.Iterator(); each.HasNext() == types.True; {
		key := each.Next()
		text, isText := key.(types.String)
		if !isText {
			return nil, errors.New("it returns a map with a key that is no text")
		}
		e.left -= len(text)
		item, err := e.plain(v.Get(key))
		if err != nil {
			return nil, err
		}
		object[string(text)] = item
	}
	return object, nil
}

// DataOf returns the data of a ConfigMap or Secret as texts; never nil.
func DataOf(object any) map[string]string {
	texts := map[string]string{}
	switch o := object.(type) {
	case *corev1.ConfigMap:
		maps.Copy(texts, o.Data)
	case *corev1.Secret:
		for key, text := range o.Data {
			texts[key] = string(text)
		}
	}
	return texts
}
