package about

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// platforms are the values of the claim by the scheme of the nodes' spec.providerID; others are "Other".
var platforms = map[string]string{
	"aws": "AWS", "azure": "Azure", "gce": "GCP", "ibm": "IBM", "openstack": "OpenStack", "vsphere": "VSphere", "baremetalhost": "BareMetal",
}

// facts are what was read of a cluster.
type facts struct {
	version string // of the API server
	id      string // empty: not known
	claims  []wire.Claim
	nodes   nodes
}

// nodes are what was read of the nodes.
type nodes struct {
	count                     int
	capacity, allocatable     map[string]resource.Quantity // nil: nodes may not be read
	platforms, regions, zones sets.Set[string]
}

// text returns the values that are not empty, in order.
func text(values sets.Set[string]) string { return strings.Join(sets.List(values.Delete("")), ",") }

// node is what matters of a Node.
type node struct {
	Metadata struct {
		Labels struct {
			Region string `json:"topology.kubernetes.io/region"`
			Zone   string `json:"topology.kubernetes.io/zone"`
		} `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		Capacity    map[string]resource.Quantity `json:"capacity"`
		Allocatable map[string]resource.Quantity `json:"allocatable"`
	} `json:"status"`
}

// add adds a node.
func (n *nodes) add(of node) {
	n.count++
	n.capacity, n.allocatable = sum(n.capacity, of.Status.Capacity), sum(n.allocatable, of.Status.Allocatable)
	if n.regions == nil {
		n.platforms, n.regions, n.zones = sets.New[string](), sets.New[string](), sets.New[string]()
	}
	n.regions.Insert(of.Metadata.Labels.Region)
	n.zones.Insert(of.Metadata.Labels.Zone)
	if scheme, _, ok := strings.Cut(of.Spec.ProviderID, "://"); ok {
		n.platforms.Insert(cmp.Or(platforms[scheme], "Other"))
	}
}

func sum(total, more map[string]resource.Quantity) map[string]resource.Quantity {
	if total == nil {
		total = map[string]resource.Quantity{}
	}
	for name, quantity := range more {
		q := total[name]
		q.Add(quantity)
		total[name] = q
	}
	return total
}

// describe returns what the cluster says of itself, within the limits of [wire.About], and the errors about what
// is left out for them.
func describe(f facts) (*wire.About, error) {
	claims, err := claims(f)
	return &wire.About{
		Kubernetes: f.version, Capacity: resources(f.nodes.capacity), Allocatable: resources(f.nodes.allocatable), Claims: claims,
	}, err
}

// claims returns the claims of a cluster by name. Those that every cluster has go first where there is not room
// for all.
func claims(f facts) (kept []wire.Claim, err error) {
	known := []wire.Claim{
		{Name: clusterv1.ClaimID, Value: f.id}, {Name: clusterv1.ClaimKubeVersion, Value: f.version}, {Name: clusterv1.ClaimPlatform, Value: text(f.nodes.platforms)},
		{Name: clusterv1.ClaimRegion, Value: text(f.nodes.regions)}, {Name: clusterv1.ClaimZone, Value: text(f.nodes.zones)},
		{Name: clusterv1.ClaimApplyAt, Value: clusterv1.ClaimApplyAtObeyed},
	}
	known = slices.DeleteFunc(known, func(c wire.Claim) bool { return c.Value == "" })
	own := slices.SortedFunc(slices.Values(f.claims), func(a, b wire.Claim) int { return strings.Compare(a.Name, b.Name) })
	kept = []wire.Claim{} // none, and known to be none
	var errs []error
	size := 0
	for i, c := range slices.Concat(known, own) {
		fault := c.Fault()
		if i >= len(known) && slices.ContainsFunc(known, func(k wire.Claim) bool { return k.Name == c.Name }) {
			fault = errors.New("claim " + c.Name + ": the agent knows its value, and the ClusterClaim is ignored")
		}
		if fault == nil && (len(kept) == wire.MaxClaims || size+len(c.Name)+len(c.Value) > wire.MaxClaimsSize) {
			fault = errors.New("claim " + c.Name + ": there are too many, or they are too large together")
		}
		if fault != nil {
			errs = append(errs, fault)
			continue
		}
		kept, size = append(kept, c), size+len(c.Name)+len(c.Value)
	}
	slices.SortFunc(kept, func(a, b wire.Claim) int { return strings.Compare(a.Name, b.Name) })
	return kept, errors.Join(errs...)
}

// resources returns quantities as [wire.About] has them: those of Kubernetes go first where there is not room for
// all. Nil is not known.
func resources(of map[string]resource.Quantity) map[string]string {
	if of == nil {
		return nil
	}
	texts := map[string]string{}
	for _, name := range slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
	}) {
		quantity := of[name]
		if quantity.Format == resource.DecimalExponent {
			quantity.Format = resource.DecimalSI
		}
		if text := quantity.String(); len(texts) < wire.MaxResources && wire.IsQuantity(text) {
			texts[name] = text
		}
	}
	return texts
}
