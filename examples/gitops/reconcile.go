package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/source"
)

// The label of the works of this program: others of the source are left alone.
const managedBy, managed = "app.kubernetes.io/managed-by", "gitops"

// reconcile makes the works as the files say, and returns the works that no file names, which stay.
func reconcile(ctx context.Context, client *source.Client, o options, files map[string][]byte) (orphans []string, err error) {
	list, err := client.ManifestWorks(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: managedBy + "=" + managed})
	if err != nil {
		return nil, err
	}
	p := planOf(files, list.Items)
	errs := p.errs
	for _, work := range p.create {
		_, err := client.ManifestWorks(work.Namespace).Create(ctx, work, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	for _, work := range p.update {
		_, err := client.ManifestWorks(work.Namespace).Update(ctx, work, metav1.UpdateOptions{})
		errs = append(errs, err)
	}
	if len(p.remove) > o.maxDeletions {
		errs = append(errs, fmt.Errorf("%d works would be deleted, more than --max-deletions=%d: nothing is deleted", len(p.remove), o.maxDeletions))
		return p.orphans, errors.Join(errs...)
	}
	for _, work := range p.remove {
		errs = append(errs, client.ManifestWorks(work.Namespace).Delete(ctx, work.Name, metav1.DeleteOptions{}))
	}
	return p.orphans, errors.Join(errs...)
}

// plan is what is to be done.
type plan struct {
	create, update, remove []*workv1.ManifestWork
	// orphans are works, as cluster/name, that no file names. They stay.
	orphans []string
	// errs are files that do not count, their works stay as they are.
	errs []error
}

// planOf compares files, by path below the folder of clusters, with the works that there are. A
// file CLUSTER/NAME.yaml is the work NAME of CLUSTER, and CLUSTER/NAME.delete deletes it.
func planOf(files map[string][]byte, works []workv1.ManifestWork) plan {
	p, there := plan{}, map[string]*workv1.ManifestWork{}
	for i := range works {
		there[works[i].Namespace+"/"+works[i].Name] = &works[i]
	}
	named := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		id, kind, ok := parsePath(path)
		if !ok {
			continue
		}
		named[id] = true
		_, isDelete := files[id+".delete"]
		_, isWork := files[id+".yaml"]
		work := there[id]
		switch {
		case isDelete && isWork:
			if kind == "yaml" {
				p.errs = append(p.errs, fmt.Errorf("there are both %[1]s.yaml and %[1]s.delete: remove one", id))
			}
		case work != nil && work.DeletionTimestamp != nil: // its end is awaited
		case kind == "delete" && work != nil:
			p.remove = append(p.remove, work)
		case kind == "yaml":
			p.want(id, files[path], work)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		if !named[id] && there[id].DeletionTimestamp == nil {
			p.orphans = append(p.orphans, id)
		}
	}
	return p
}

// want plans that a work has the manifests in text; work is nil if there is none.
func (p *plan) want(id string, text []byte, work *workv1.ManifestWork) {
	manifests, err := manifestsOf(id, text)
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	if work == nil {
		cluster, name, _ := strings.Cut(id, "/")
		work = &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, Labels: map[string]string{managedBy: managed}}}
		work.Spec.Workload.Manifests = manifests
		p.create = append(p.create, work)
		return
	}
	if !slices.EqualFunc(work.Spec.Workload.Manifests, manifests, func(a, b workv1.Manifest) bool { return bytes.Equal(a.Raw, b.Raw) }) {
		work = work.DeepCopy()
		work.Spec.Workload.Manifests = manifests
		p.update = append(p.update, work)
	}
}

// parsePath returns the work that a file is about, as cluster/name, and "yaml" or "delete"; false for
// other files.
func parsePath(path string) (id, kind string, ok bool) {
	for _, kind := range []string{"yaml", "delete"} {
		if id, is := strings.CutSuffix(path, "."+kind); is {
			cluster, name, _ := strings.Cut(id, "/")
			return id, kind, len(validation.IsDNS1123Label(cluster)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
		}
	}
	return "", "", false
}

// manifestsOf returns the manifests in a file, at least one.
func manifestsOf(name string, text []byte) ([]workv1.Manifest, error) {
	parsed, err := wrap.Parse(name+".yaml", text)
	if err != nil {
		return nil, err
	}
	var manifests []workv1.Manifest
	for _, m := range parsed {
		one := workv1.Manifest{}
		if one.Raw, err = m.Object.MarshalJSON(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		one.Raw = bytes.TrimSpace(one.Raw)
		manifests = append(manifests, one)
	}
	if len(manifests) == 0 {
		return nil, fmt.Errorf("%s.yaml has no manifests: its work stays as it is; rename it to %[1]s.delete to delete the work", name)
	}
	return manifests, nil
}
