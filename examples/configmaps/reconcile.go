package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
)

// managed is the label of the works of this controller: others of the source are left alone.
const managed = "app.kubernetes.io/managed-by=configmaps"

// reconcile reads the files, and makes the works as they say.
func reconcile(ctx context.Context, client *source.Client, o options) error {
	text, err := os.ReadFile(o.clusters)
	if err != nil {
		return err
	}
	clusters, err := parseClusters(text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.clusters, err)
	}
	if text, err = os.ReadFile(o.configMap); err != nil {
		return err
	}
	work, err := workOf(text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.configMap, err)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return err
	}
	list, err := client.ManifestWorks(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return err
	}
	p := planOf(clusters, selector, work, list.Items)
	var errs []error
	for _, cluster := range p.create {
		_, err := client.ManifestWorks(cluster).Create(ctx, work, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	for i := range p.update {
		next := &p.update[i]
		next.Spec = work.Spec
		_, err := client.ManifestWorks(next.Namespace).Update(ctx, next, metav1.UpdateOptions{})
		errs = append(errs, err)
	}
	if len(p.remove) > o.maxDeletions {
		return errors.Join(append(errs, fmt.Errorf("%d clusters would lose the ConfigMap, more than --max-deletions=%d: nothing is deleted", len(p.remove), o.maxDeletions))...)
	}
	for i := range p.remove {
		errs = append(errs, client.ManifestWorks(p.remove[i].Namespace).Delete(ctx, p.remove[i].Name, metav1.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

// plan is what is to be done: clusters that get a work, works that change, and works that go.
type plan struct {
	create []string
	update []workv1.ManifestWork
	remove []workv1.ManifestWork
}

// planOf compares works with what they should be. A work that is being deleted is awaited.
func planOf(clusters map[string]labels.Set, selector labels.Selector, want *workv1.ManifestWork, works []workv1.ManifestWork) plan {
	p, there := plan{}, map[string]bool{}
	for _, work := range works {
		set, known := clusters[work.Namespace]
		wanted := known && selector.Matches(set) && work.Name == want.Name
		if work.Name == want.Name {
			there[work.Namespace] = true
		}
		switch {
		case work.DeletionTimestamp != nil:
		case !wanted:
			p.remove = append(p.remove, work)
		case !bytes.Equal(work.Spec.Workload.Manifests[0].Raw, want.Spec.Workload.Manifests[0].Raw):
			p.update = append(p.update, work)
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		if selector.Matches(clusters[cluster]) && !there[cluster] {
			p.create = append(p.create, cluster)
		}
	}
	return p
}

// parseClusters returns labels by cluster. A file without clusters is an error: it is more likely to be
// truncated than meant to delete everything.
func parseClusters(text []byte) (map[string]labels.Set, error) {
	clusters := map[string]labels.Set{}
	if err := yaml.UnmarshalStrict(text, &clusters); err != nil {
		return nil, err
	}
	if len(clusters) == 0 {
		return nil, errors.New("it has no clusters: nothing is changed")
	}
	for name := range clusters {
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			return nil, fmt.Errorf("cluster %q: %s", name, errs[0])
		}
	}
	return clusters, nil
}

// workOf returns the work with a ConfigMap in YAML.
func workOf(text []byte) (*workv1.ManifestWork, error) {
	configMap := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, configMap); err != nil {
		return nil, err
	}
	if configMap.Kind != "ConfigMap" || configMap.APIVersion != "v1" || configMap.Name == "" || configMap.Namespace == "" {
		return nil, errors.New("it is no ConfigMap with apiVersion, kind, namespace and name")
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	set, err := labels.ConvertSelectorToLabelsMap(managed)
	if err != nil {
		return nil, err
	}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "configmap-" + configMap.Name, Labels: set}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = raw
	return work, nil
}
