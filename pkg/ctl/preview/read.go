package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/ctl/render"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/hub/revisions"
)

// Subject is what is previewed.
type Subject struct {
	// Namespace is that of the set, and Name its name; that is optional with Files of one set.
	Namespace, Name string
	// Anywhere: Namespace is only that of a set of Files without one.
	Anywhere bool
	// Files have the set in place of what the hub has, and may have WorkOverrides of it, and ConfigMaps and Secrets that these
	// refer to; nil for the stored set.
	Files *render.Input
}

// Plan is who is asked what. It is not safe for concurrent use.
type Plan struct {
	// Set is the set with the template to preview.
	Set *workv1alpha1.ManifestWorkReplicaSet
	// Revision is the number of the template, 0 if it is not stored.
	Revision int64
	// Results has one for each cluster that a placement of the set selects, or would if the cluster were not away: first the latter, then by
	// placement and name. Those without a State are to be asked.
	Results []Result
	// Leaving are the works that the set has and would not have, since none of its placements selects the cluster.
	Leaving []Leaving

	hash      string
	overrides []*workwirev1alpha1.WorkOverride
	rules     *overrides.Rules
	values    overrides.Values
	clusters  map[string]*clusterv1.ManagedCluster
	known     map[workKey]bool // works of which the agent has reported a status
}

// Leaving is a work that would be deleted, with its objects.
type Leaving struct {
	Cluster string `json:"cluster"`
	Work    string `json:"work"`
}

// Read reads what the hub's API has of a set, its placements, overrides, clusters and works.
func Read(ctx context.Context, r *fleet.Reader, of Subject) (*Plan, error) {
	p := &Plan{Leaving: []Leaving{}, clusters: make(map[string]*clusterv1.ManagedCluster), known: make(map[workKey]bool)}
	if err := p.readSet(ctx, r, of); err != nil {
		return nil, err
	}
	if err := p.readOverrides(ctx, r, of); err != nil {
		return nil, err
	}
	clusters, err := r.Clients.ClusterV1().ManagedClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cli.APIError("list the clusters", err)
	}
	for i := range clusters.Items {
		p.clusters[clusters.Items[i].Name] = &clusters.Items[i]
	}
	works, err := r.Works(ctx, "", workv1.ReplicaSetLabelKey+"="+workv1alpha1.WorkLabel(keyOf(p.Set)))
	if err != nil {
		return nil, err
	}
	selected := make(map[string][]string)
	for _, ref := range p.Set.Spec.PlacementRefs {
		if selected[ref.Name], err = readPlacement(ctx, r, p.Set.Namespace, ref.Name); err != nil {
			return nil, err
		}
	}
	p.plan(selected, works)
	return p, nil
}

func (p *Plan) readSet(ctx context.Context, r *fleet.Reader, of Subject) (err error) {
	if of.Files != nil {
		p.Set, err = setOf(of)
	} else {
		p.Set, err = r.Clients.WorkV1alpha1().ManifestWorkReplicaSets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		err = cli.APIError("get the set "+of.Name, err)
	}
	if err != nil {
		return err
	}
	if p.hash, err = revisions.Hash(&p.Set.Spec.ManifestWorkTemplate); err != nil {
		return err
	}
	if a := p.Set.Annotations; of.Files == nil && a[workwirev1alpha1.RevisionHashAnnotationKey] == p.hash {
		p.Revision = workwirev1alpha1.RevisionOf(a, workwirev1alpha1.RevisionAnnotationKey)
	}
	return nil
}

// setOf returns the set of files.
func setOf(of Subject) (*workv1alpha1.ManifestWorkReplicaSet, error) {
	var found []*workv1alpha1.ManifestWorkReplicaSet
	for _, set := range of.Files.Sets() {
		if of.Name == "" || set.Name == of.Name {
			found = append(found, set)
		}
	}
	if len(found) != 1 {
		return nil, cli.Usagef("the files have %d sets %s, and one is previewed: name it", len(found), of.Name)
	}
	set := found[0]
	if set.Namespace = cmp.Or(set.Namespace, of.Namespace); set.Namespace != of.Namespace && !of.Anywhere {
		return nil, cli.Usagef("the set %s is in namespace %s, and -n is %s", set.Name, set.Namespace, of.Namespace)
	}
	return set, nil
}

// readOverrides reads the WorkOverrides of the set. Those of files take the place of those of their name.
func (p *Plan) readOverrides(ctx context.Context, r *fleet.Reader, of Subject) error {
	namespace := p.Set.Namespace
	stored, err := r.Clients.WorkwireV1alpha1().WorkOverrides(namespace).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // the definition is not installed
		return cli.APIError("list the WorkOverrides", err)
	}
	if of.Files != nil {
		for _, o := range of.Files.Overrides() {
			if cmp.Or(o.Namespace, namespace) == namespace && o.Spec.ReplicaSet == p.Set.Name {
				p.overrides = append(p.overrides, o)
			}
		}
	}
	fromFiles := slices.Clone(p.overrides)
	for i := range stored.Items {
		o := &stored.Items[i]
		if o.Spec.ReplicaSet == p.Set.Name && !slices.ContainsFunc(fromFiles, func(f *workwirev1alpha1.WorkOverride) bool { return f.Name == o.Name }) {
			p.overrides = append(p.overrides, o)
		}
	}
	compiler, err := overrides.NewCompiler()
	if err != nil {
		return err
	}
	p.rules = compiler.Compile(p.overrides)
	p.values, err = readValues(ctx, r, namespace, of.Files, p.rules.References())
	return err
}

// readValues reads the ConfigMaps and Secrets that overrides refer to, unless files have them. One that is not there, or must not be
// read, is an error for the clusters that need it.
func readValues(ctx context.Context, r *fleet.Reader, namespace string, files *render.Input, references []overrides.Reference) (overrides.Values, error) {
	type values struct {
		data map[string]string
		err  error
	}
	all := make(map[overrides.Reference]values)
	for _, from := range references {
		v := values{}
		if files != nil {
			v.data = files.Data(namespace, from)
		}
		if v.data == nil {
			v.data, v.err = readData(ctx, r, namespace, from)
		}
		if v.err != nil && !apierrors.IsForbidden(v.err) {
			return nil, cli.APIError(fmt.Sprintf("get the %s %s", from.Kind, from.Name), v.err)
		}
		all[from] = v
	}
	return func(from overrides.Reference, key string) (string, error) {
		if err := all[from].err; err != nil {
			return "", fmt.Errorf("you may not read the %s %s", from.Kind, from.Name)
		}
		return overrides.ValueOf(all[from].data, all[from].data != nil, from, key)
	}, nil
}

// readData returns the data of a ConfigMap or Secret, nil if it does not exist.
func readData(ctx context.Context, r *fleet.Reader, namespace string, from overrides.Reference) (map[string]string, error) {
	var found any
	var err error
	if from.Kind == overrides.ConfigMap {
		found, err = r.Kube.CoreV1().ConfigMaps(namespace).Get(ctx, from.Name, metav1.GetOptions{})
	} else {
		found, err = r.Kube.CoreV1().Secrets(namespace).Get(ctx, from.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return overrides.DataOf(found), err
}

// readPlacement returns the clusters that a placement has selected, sorted.
func readPlacement(ctx context.Context, r *fleet.Reader, namespace, name string) ([]string, error) {
	placement, err := r.Clients.ClusterV1beta1().Placements(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, cli.APIError("get the placement "+name, err)
	}
	decisions, err := r.Clients.ClusterV1beta1().PlacementDecisions(namespace).List(ctx, metav1.ListOptions{LabelSelector: clusterv1beta1.PlacementLabel + "=" + name})
	if err != nil {
		return nil, cli.APIError("list the decisions of the placement "+name, err)
	}
	var clusters []string
	for i := range decisions.Items {
		for _, d := range decisions.Items[i].Status.Decisions {
			clusters = append(clusters, d.ClusterName)
		}
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	if len(clusters) != int(placement.Status.NumberOfSelectedClusters) {
		return nil, cli.Errorf("the decisions of the placement %s are being written: they have %d of %d clusters", name, len(clusters), placement.Status.NumberOfSelectedClusters).
			Do("try again when the hub has written them")
	}
	return clusters, nil
}

// plan sets Results and Leaving. selected are the clusters of each placement, works those of the set.
func (p *Plan) plan(selected map[string][]string, works []workv1.ManifestWork) {
	slices.SortFunc(works, func(a, b workv1.ManifestWork) int { // as the hub chooses one of several
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	names := make(map[[2]string]string) // by placement and cluster
	for i := range works {
		w := &works[i]
		placement := w.Labels[workv1.PlacementNameLabelKey]
		if w.DeletionTimestamp != nil {
			continue
		}
		if _, found := slices.BinarySearch(selected[placement], w.Namespace); !found {
			if state, why := presence(p.clusters[w.Namespace]); state == Away && p.refersTo(placement) { // the hub keeps the work until it is back
				p.Results = append(p.Results, Result{Cluster: w.Namespace, Placement: placement, Work: w.Name, State: state, Message: why})
			} else {
				p.Leaving = append(p.Leaving, Leaving{w.Namespace, w.Name})
			}
			continue
		}
		if key := [2]string{placement, w.Namespace}; names[key] == "" {
			names[key] = w.Name
			p.known[workKey{w.Namespace, w.Name}] = slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool { return !workv1.IsOfHub(&c) })
		}
	}
	slices.SortFunc(p.Leaving, func(a, b Leaving) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Work, b.Work)) })
	set := keyOf(p.Set)
	for _, ref := range p.Set.Spec.PlacementRefs {
		for _, name := range selected[ref.Name] {
			r := Result{Cluster: name, Placement: ref.Name, Work: cmp.Or(names[[2]string{ref.Name, name}], workv1alpha1.WorkName(set, ref.Name))}
			r.State, r.Message = presence(p.clusters[name])
			p.Results = append(p.Results, r)
		}
	}
}

func (p *Plan) refersTo(placement string) bool {
	return slices.ContainsFunc(p.Set.Spec.PlacementRefs, func(ref workv1alpha1.LocalPlacementReference) bool { return ref.Name == placement })
}

// presence returns the state of a cluster that is not to be asked, and why. That it is away the hub says, unless it does not
// know.
func presence(cluster *clusterv1.ManagedCluster) (State, string) {
	if cluster == nil {
		return "", ""
	}
	if !cluster.Spec.HubAcceptsClient {
		return NotAccepted, "the hub does not accept it"
	}
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	if !clusterv1.IsAway(available) {
		return "", ""
	}
	return Away, "away since " + available.LastTransitionTime.UTC().Format(time.RFC3339)
}

// render returns the spec of the work of a cluster.
func (p *Plan) render(cluster string) (*workv1.ManifestWorkSpec, error) {
	object := p.clusters[cluster]
	if object == nil {
		object = &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	}
	spec, err := p.rules.Render(&p.Set.Spec.ManifestWorkTemplate, object, p.values)
	if of, ok := errors.AsType[*overrides.Error](err); ok {
		return nil, errors.New(of.Reason())
	}
	return spec, err
}

func keyOf(set *workv1alpha1.ManifestWorkReplicaSet) types.NamespacedName {
	return types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
}
