package preview

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/workwire/workwire/pkg/runtime/amount"
)

// ParseSize parses how many clusters are asked: "12" or "5%".
func ParseSize(text string) (amount.Amount, error) {
	size, err := amount.Of(intstr.Parse(text))
	if err != nil || size.Resolve(1) < 1 {
		return size, fmt.Errorf("%q must be a number from 1, or a percentage from 1%% to 100%%", text)
	}
	return size, nil
}

// sample returns which of names are asked: size of them, the same ones each time, spread evenly by a hash with seed.
func sample(size amount.Amount, names []string, seed string) map[string]bool {
	hash := func(name string) string {
		sum := sha256.Sum256([]byte(seed + "/" + name))
		return string(sum[:])
	}
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(hash(a), hash(b)) })
	chosen := make(map[string]bool)
	for _, name := range names[:min(len(names), size.Resolve(len(names)))] {
		chosen[name] = true
	}
	return chosen
}

// Choose has only these clusters asked: those that are named or, if none are, a sample of size of those that can be. The error names
// clusters that the set does not select.
func (p *Plan) Choose(named []string, size amount.Amount) error {
	chosen := make(map[string]bool)
	if len(named) == 0 {
		var names []string
		for i := range p.Results {
			if p.Results[i].State == "" {
				names = append(names, p.Results[i].Cluster)
			}
		}
		slices.Sort(names)
		chosen = sample(size, slices.Compact(names), p.Set.Namespace+"/"+p.Set.Name)
	}
	for _, name := range named {
		if !slices.ContainsFunc(p.Results, func(r Result) bool { return r.Cluster == name }) {
			return fmt.Errorf("no placement of the set selects the cluster %q", name)
		}
		chosen[name] = true
	}
	for i := range p.Results {
		if r := &p.Results[i]; !chosen[r.Cluster] && r.State == "" {
			r.State = NotAsked
		}
	}
	return nil
}
