// Package render is what `workctl render` does: it makes the works of clusters from files with a
// ManifestWorkReplicaSet, its WorkOverrides and what they refer to, without a hub.
package render

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/hub/overrides"
)

// Input is what works are made of.
type Input struct {
	sets      []*workv1alpha1.ManifestWorkReplicaSet
	overrides []*workwirev1alpha1.WorkOverride
	clusters  []*clusterv1.ManagedCluster
	values    map[valueKey]map[string]string
}

// valueKey names a ConfigMap or Secret.
type valueKey struct {
	namespace string
	from      overrides.Reference
}

// Parse returns the input that files with sets, overrides, ConfigMaps and Secrets have, and a file with
// ManagedClusters. It ignores objects of other kinds. Its error names every object that is wrong.
func Parse(files, clusters []wrap.Manifest) (*Input, error) {
	in, err := ParseSets(files)
	errs := []error{err, each(clusters, in.addCluster)}
	if len(in.clusters) == 0 {
		errs = append(errs, errors.New("the clusters' file has no ManagedCluster: kubectl get managedclusters -o yaml writes one"))
	}
	for _, o := range in.overrides {
		if !slices.ContainsFunc(in.sets, func(set *workv1alpha1.ManifestWorkReplicaSet) bool { return isOf(o, set) }) {
			errs = append(errs, fmt.Errorf("WorkOverride %s: the files have no ManifestWorkReplicaSet %s in its namespace", o.Name, o.Spec.ReplicaSet))
		}
	}
	return in, errors.Join(errs...)
}

// ParseSets returns the input that files with sets, overrides, ConfigMaps and Secrets have, without clusters, also with an error.
func ParseSets(files []wrap.Manifest) (*Input, error) {
	in := &Input{values: make(map[valueKey]map[string]string)}
	err := each(files, in.add)
	if len(in.sets) == 0 {
		err = errors.Join(err, errors.New("the files have no ManifestWorkReplicaSet"))
	}
	return in, err
}

// each calls add for each manifest, and joins its errors.
func each(manifests []wrap.Manifest, add func(*unstructured.Unstructured) error) error {
	var errs []error
	for _, m := range manifests {
		if err := add(m.Object); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.String(), err))
		}
	}
	return errors.Join(errs...)
}

// Sets returns the sets of the files.
func (in *Input) Sets() []*workv1alpha1.ManifestWorkReplicaSet { return in.sets }

// Overrides returns the overrides of the files.
func (in *Input) Overrides() []*workwirev1alpha1.WorkOverride { return in.overrides }

// Data returns the data of a ConfigMap or Secret of the files, nil if they do not have it. One without a namespace is in each.
func (in *Input) Data(namespace string, from overrides.Reference) map[string]string {
	if data, ok := in.values[valueKey{namespace, from}]; ok {
		return data
	}
	return in.values[valueKey{"", from}]
}

func isOf(o *workwirev1alpha1.WorkOverride, set *workv1alpha1.ManifestWorkReplicaSet) bool {
	return o.Namespace == set.Namespace && o.Spec.ReplicaSet == set.Name
}

func (in *Input) add(object *unstructured.Unstructured) error {
	group := object.GroupVersionKind().Group
	switch kind := object.GetKind(); {
	case kind == "ManifestWorkReplicaSet" && group == workv1.GroupName:
		return decode(object, &in.sets, yaml.Unmarshal)
	case kind == "WorkOverride" && group == workwirev1alpha1.GroupName:
		return decode(object, &in.overrides, func(text []byte, into any, _ ...yaml.JSONOpt) error { return yaml.UnmarshalStrict(text, into) })
	case (kind == string(overrides.ConfigMap) || kind == string(overrides.Secret)) && group == "":
		return in.addValues(object, overrides.Kind(kind))
	}
	return nil
}

func (in *Input) addCluster(object *unstructured.Unstructured) error {
	if object.GetKind() != "ManagedCluster" || object.GroupVersionKind().Group != clusterv1.GroupName {
		return nil
	}
	return decode(object, &in.clusters, yaml.Unmarshal)
}

// decode appends the object as a T.
func decode[T any](object *unstructured.Unstructured, to *[]*T, unmarshal func([]byte, any, ...yaml.JSONOpt) error) error {
	raw, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	into := new(T)
	if err := unmarshal(raw, into); err != nil {
		return err
	}
	*to = append(*to, into)
	return nil
}

// addValues takes the data of a ConfigMap or Secret. Its error has none of them.
func (in *Input) addValues(object *unstructured.Unstructured, kind overrides.Kind) error {
	raw, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	of := struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Data       map[string]string `json:"data"`
		StringData map[string]string `json:"stringData"`
	}{}
	if err := json.Unmarshal(raw, &of); err != nil {
		return errors.New("its data must be texts")
	}
	texts := make(map[string]string, len(of.Data))
	for key, text := range of.Data {
		if kind == overrides.Secret {
			decoded, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return fmt.Errorf("data.%s is no base64", key)
			}
			text = string(decoded)
		}
		texts[key] = text
	}
	if kind == overrides.Secret {
		maps.Copy(texts, of.StringData)
	}
	in.values[valueKey{of.Metadata.Namespace, overrides.Reference{Kind: kind, Name: of.Metadata.Name}}] = texts
	return nil
}

// Works returns a work for each set and cluster, sorted by these, or of one cluster only. Each has the name of its
// set: the hub's ends with a hash. The error joins those of the clusters whose overrides fail; the works of the
// others are returned with it.
func (in *Input) Works(cluster string) ([]*workv1.ManifestWork, error) {
	compiler, err := overrides.NewCompiler()
	if err != nil {
		return nil, err
	}
	clusters := slices.DeleteFunc(slices.Clone(in.clusters), func(c *clusterv1.ManagedCluster) bool { return cluster != "" && c.Name != cluster })
	if len(clusters) == 0 {
		return nil, fmt.Errorf("the clusters' file has no ManagedCluster %s", cluster)
	}
	slices.SortFunc(clusters, func(a, b *clusterv1.ManagedCluster) int { return strings.Compare(a.Name, b.Name) })
	var all []*workv1.ManifestWork
	var errs []error
	for _, set := range in.sets {
		var list []*workwirev1alpha1.WorkOverride
		for _, o := range in.overrides {
			if isOf(o, set) {
				list = append(list, o)
			}
		}
		rules := compiler.Compile(list)
		for _, cluster := range clusters {
			spec, err := rules.Render(&set.Spec.ManifestWorkTemplate, cluster, in.valuesIn(set.Namespace))
			if err != nil {
				errs = append(errs, fmt.Errorf("ManifestWorkReplicaSet %s: %w", set.Name, err))
				continue
			}
			all = append(all, newWork(set, cluster.Name, spec))
		}
	}
	return all, errors.Join(errs...)
}

func newWork(set *workv1alpha1.ManifestWorkReplicaSet, cluster string, spec *workv1.ManifestWorkSpec) *workv1.ManifestWork {
	return &workv1.ManifestWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: set.Name, Labels: set.Labels},
		Spec:       *spec,
	}
}

// valuesIn returns the values of a namespace.
func (in *Input) valuesIn(namespace string) overrides.Values {
	return func(from overrides.Reference, key string) (string, error) {
		data, ok := in.values[valueKey{namespace, from}]
		return overrides.ValueOf(data, ok, from, key)
	}
}
