package preview

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Size is how many clusters are asked: a number of them, or a percentage.
type Size struct {
	number  int
	percent bool
}

// ParseSize parses "12" or "5%".
func ParseSize(text string) (Size, error) {
	digits, percent := strings.CutSuffix(text, "%")
	number, err := strconv.Atoi(digits)
	if err != nil || number < 1 || percent && number > 100 {
		return Size{}, fmt.Errorf("%q must be a number from 1, or a percentage from 1%% to 100%%", text)
	}
	return Size{number, percent}, nil
}

// of returns how many of n clusters are asked, and at least one.
func (s Size) of(n int) int {
	if s.percent {
		return (n*s.number + 99) / 100
	}
	return min(n, s.number)
}

// sample returns which of names are asked: the same ones each time, spread evenly by a hash with seed.
func (s Size) sample(names []string, seed string) map[string]bool {
	hash := func(name string) string {
		sum := sha256.Sum256([]byte(seed + "/" + name))
		return string(sum[:])
	}
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(hash(a), hash(b)) })
	chosen := make(map[string]bool)
	for _, name := range names[:s.of(len(names))] {
		chosen[name] = true
	}
	return chosen
}

// Choose has only these clusters asked: those that are named or, if none are, a sample of size of those that can be. The error names
// clusters that the set does not select.
func (p *Plan) Choose(named []string, size Size) error {
	chosen := make(map[string]bool)
	if len(named) == 0 {
		var names []string
		for i := range p.Results {
			if p.Results[i].State == "" {
				names = append(names, p.Results[i].Cluster)
			}
		}
		slices.Sort(names)
		chosen = size.sample(slices.Compact(names), p.Set.Namespace+"/"+p.Set.Name)
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
