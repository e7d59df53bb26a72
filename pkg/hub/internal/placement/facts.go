package placement

import (
	"maps"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/expression"
)

// scores are the AddOnPlacementScores of a cluster by name.
type scores map[string]*clusterv1alpha1.AddOnPlacementScore

// equal reports whether nobody distinguishes c from o.
func (c *cluster) equal(o *cluster) bool {
	a, b := c.object, o.object
	return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && maps.Equal(a.Labels, b.Labels) && maps.Equal(clusterv1.SteadyAnnotations(a), clusterv1.SteadyAnnotations(b)) &&
		apiequality.Semantic.DeepEqual(a.Spec, b.Spec) && apiequality.Semantic.DeepEqual(a.Status, b.Status) && maps.Equal(c.scores, o.scores)
}

// expiry returns the Unix time when the scores of s expire; 0 if they do not.
func expiry(s *clusterv1alpha1.AddOnPlacementScore) int64 {
	if s.Status.ValidUntil == nil {
		return 0
	}
	return max(1, s.Status.ValidUntil.Unix())
}

// earliest returns the earlier of two Unix times, of which 0 is never.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// valid returns the scores of that name unless they have expired, and until when that holds.
func (c *cluster) valid(name string, now int64) (s *clusterv1alpha1.AddOnPlacementScore, until int64) {
	if s = c.scores[name]; s == nil {
		return nil, 0
	}
	if until = expiry(s); until != 0 && until <= now {
		return nil, 0
	}
	return s, until
}

// values returns the variable managedCluster of expressions: the fields that the API has, and empty maps, lists and
// texts for those without a value.
func (c *cluster) values() map[string]any {
	o := c.object
	taints := make([]any, len(o.Spec.Taints))
	for i, t := range o.Spec.Taints {
		taints[i] = map[string]string{"key": t.Key, "value": t.Value, "effect": string(t.Effect)}
	}
	claims := make([]any, len(o.Status.ClusterClaims))
	for i, claim := range o.Status.ClusterClaims {
		claims[i] = map[string]string{"name": claim.Name, "value": claim.Value}
	}
	conditions := make([]any, len(o.Status.Conditions))
	for i, of := range o.Status.Conditions {
		conditions[i] = map[string]string{
			"type": of.Type, "status": string(of.Status), "reason": of.Reason, "message": of.Message,
			"lastTransitionTime": of.LastTransitionTime.UTC().Format(time.RFC3339),
		}
	}
	return map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "ManagedCluster",
		"metadata": map[string]any{
			"name": o.Name, "uid": string(o.UID), "labels": o.Labels, "annotations": clusterv1.SteadyAnnotations(o),
			"creationTimestamp": o.CreationTimestamp.UTC().Format(time.RFC3339),
		},
		"spec": map[string]any{
			"hubAcceptsClient": o.Spec.HubAcceptsClient, "leaseDurationSeconds": o.Spec.LeaseDurationSeconds, "taints": taints,
		},
		"status": map[string]any{
			"version": map[string]string{"kubernetes": o.Status.Version.Kubernetes}, "clusterClaims": claims, "conditions": conditions,
			"capacity": o.Status.Capacity.Texts(), "allocatable": o.Status.Allocatable.Texts(),
		},
	}
}

// managedCluster is the value of the variable of that name in one evaluation.
type managedCluster struct {
	traits.Mapper
	cluster *cluster
	now     int64
	until   int64 // when the scores expire that were read; 0 if never
	read    map[string]ref.Val
}

func newManagedCluster(c *cluster, now int64) *managedCluster {
	return &managedCluster{Mapper: types.DefaultTypeAdapter.NativeToValue(c.values()).(traits.Mapper), cluster: c, now: now}
}

// scores returns the scores of that name as a list; an empty one if there are none, or they have expired.
func (m *managedCluster) scores(name string) ref.Val {
	if list, ok := m.read[name]; ok {
		return list
	}
	list := []any{}
	s, until := m.cluster.valid(name, m.now)
	if s != nil {
		for _, item := range s.Status.Scores {
			score := map[string]any{"name": item.Name, "value": int64(item.Value)}
			if item.Quantity != nil {
				score["quantity"] = item.Quantity.String()
			}
			list = append(list, score)
		}
	}
	m.until = earliest(m.until, until)
	if m.read == nil {
		m.read = make(map[string]ref.Val)
	}
	m.read[name] = types.DefaultTypeAdapter.NativeToValue(list)
	return m.read[name]
}

// newCompiler returns what compiles the expressions of selectors.
func newCompiler() (*expression.Compiler, error) {
	return expression.New(maxClusterCost,
		cel.Variable("managedCluster", cel.DynType),
		cel.Function("scores", cel.MemberOverload("managed_cluster_scores", []*cel.Type{cel.DynType, cel.StringType}, cel.ListType(cel.DynType),
			cel.BinaryBinding(func(of, name ref.Val) ref.Val {
				cluster, ok := of.(*managedCluster)
				if !ok {
					return types.NewErr("no such overload: scores is a function of managedCluster")
				}
				return cluster.scores(string(name.(types.String)))
			}))),
		expression.JSON(),
		expression.Versions(),
	)
}
