package applied

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// encodedSnapshot is the JSON of a snapshot. Manifests with equal conditions, which are most of a
// work, share them.
type encodedSnapshot struct {
	Work      []transition   `json:"work,omitempty"`
	Manifests []encodedGroup `json:"manifests,omitempty"`
}

type encodedGroup struct {
	Conditions []transition `json:"conditions,omitempty"`
	Kinds      []kindNames  `json:"kinds"`
}

// kindNames holds the names of the manifests of a kind, by namespace.
type kindNames struct {
	Kind  [4]string           `json:"kind"` // encodedGroup, version, kind, resource
	Names map[string][]string `json:"names"`
}

func (s snapshot) encode() (string, error) {
	out := encodedSnapshot{Work: s.work}
	total := len(s.work)
	places := map[string]int{}
	for _, e := range s.manifests {
		total += len(e.conditions)
		key, err := json.Marshal(e.conditions)
		if err != nil {
			return "", err
		}
		at, ok := places[string(key)]
		if !ok {
			at = len(out.Manifests)
			places[string(key)] = at
			out.Manifests = append(out.Manifests, encodedGroup{Conditions: e.conditions})
		}
		out.Manifests[at].add(e.meta)
	}
	if len(out.Work) == 0 && len(out.Manifests) == 0 {
		return "", nil
	}
	if total > maxConditions {
		return "", fmt.Errorf("%d conditions are more than %d", total, maxConditions)
	}
	plain, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	return compress(plain, plainTransitions)
}

// add adds a manifest. Manifests are sorted, so those of a kind are consecutive.
func (g *encodedGroup) add(meta workv1.ManifestResourceMeta) {
	kind := [4]string{meta.Group, meta.Version, meta.Kind, meta.Resource}
	last := len(g.Kinds) - 1
	if last < 0 || g.Kinds[last].Kind != kind {
		g.Kinds = append(g.Kinds, kindNames{Kind: kind, Names: map[string][]string{}})
		last++
	}
	names := g.Kinds[last].Names
	names[meta.Namespace] = append(names[meta.Namespace], meta.Name)
}

func parseTransitions(text string) (snapshot, error) {
	if text == "" {
		return snapshot{}, nil
	}
	plain, err := uncompress(text)
	if err != nil {
		return snapshot{}, err
	}
	var in encodedSnapshot
	if err := json.Unmarshal(plain, &in); err != nil {
		return snapshot{}, err
	}
	r := snapshot{work: in.Work}
	total := len(in.Work)
	for _, g := range in.Manifests {
		for _, of := range g.Kinds {
			for _, namespace := range slices.Sorted(maps.Keys(of.Names)) {
				names := of.Names[namespace]
				if total += len(names) * len(g.Conditions); total > maxConditions {
					return snapshot{}, fmt.Errorf("they are more than %d conditions", maxConditions)
				}
				for _, name := range names {
					r.manifests = append(r.manifests, manifestSnapshot{conditions: g.Conditions, meta: workv1.ManifestResourceMeta{
						Group: of.Kind[0], Version: of.Kind[1], Kind: of.Kind[2], Resource: of.Kind[3], Namespace: namespace, Name: name,
					}})
				}
			}
		}
	}
	slices.SortFunc(r.manifests, func(a, b manifestSnapshot) int { return compareMeta(a.meta, b.meta) })
	for i := 1; i < len(r.manifests); i++ {
		if r.manifests[i-1].meta == r.manifests[i].meta {
			return snapshot{}, fmt.Errorf("%s %s/%s has two entries",
				r.manifests[i].meta.Kind, r.manifests[i].meta.Namespace, r.manifests[i].meta.Name)
		}
	}
	return r, nil
}

func compareMeta(a, b workv1.ManifestResourceMeta) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}
