package events

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
)

// Maker makes specs of works.
type Maker struct {
	Source    wire.SourceID
	Cluster   wire.ClusterName
	Namespace string // of the objects
}

// Works makes n works of objects ConfigMaps each, with names that begin with prefix, in their first
// generation.
func (m *Maker) Works(prefix string, n, objects int) []*wire.Spec {
	specs := make([]*wire.Spec, n)
	for i := range specs {
		name := fmt.Sprintf("%s-%d", prefix, i)
		manifests := make([]string, objects)
		for j := range manifests {
			manifests[j] = m.configMap(fmt.Sprintf("%s-%d", name, j), baseline.Data("1"))
		}
		specs[i] = m.Work(name, &wire.Bundle{}, manifests...)
	}
	return specs
}

// Large makes a work of so many ConfigMaps of about size bytes each.
func (m *Maker) Large(name string, objects, size int) *wire.Spec {
	manifests := make([]string, objects)
	for j := range manifests {
		value := make([]byte, size/2)
		_, _ = rand.Read(value) // never fails
		plain := m.configMap(fmt.Sprintf("%s-%d", name, j), `{"value":""}`)
		text := hex.EncodeToString(value)[:max(size-len(plain), 0)]
		manifests[j] = m.configMap(fmt.Sprintf("%s-%d", name, j), fmt.Sprintf(`{"value":%q}`, text))
	}
	return m.Work(name, &wire.Bundle{}, manifests...)
}

// Work makes a work of manifests with the options of bundle.
func (m *Maker) Work(name string, bundle *wire.Bundle, manifests ...string) *wire.Spec {
	for _, manifest := range manifests {
		bundle.Manifests = append(bundle.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	uid := types.UID(uuid.NewString())
	return &wire.Spec{
		UID: uid, Generation: 1, Source: m.Source, Cluster: m.Cluster, Action: wire.Create,
		Meta:   metav1.ObjectMeta{Name: name, Namespace: string(m.Cluster), UID: uid, Generation: 1, CreationTimestamp: metav1.Now()},
		Bundle: bundle,
	}
}

func (m *Maker) configMap(name, data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":%s}`, name, m.Namespace, data)
}

// Changed gives the next generation of works made by [Maker.Works]: all their objects are other
// ones.
func Changed(specs []*wire.Spec) []*wire.Spec {
	next := make([]*wire.Spec, len(specs))
	for i, spec := range specs {
		changed := *spec
		changed.Generation, changed.Action = spec.Generation+1, wire.Update
		changed.Meta.Generation = int64(changed.Generation)
		bundle := *spec.Bundle
		bundle.Manifests = make([]workv1.Manifest, len(spec.Bundle.Manifests))
		for j, manifest := range spec.Bundle.Manifests {
			text := strings.Replace(string(manifest.Raw), baseline.Data("1"), baseline.Data("2"), 1)
			bundle.Manifests[j].Raw = []byte(text)
		}
		changed.Bundle = &bundle
		next[i] = &changed
	}
	return next
}

// Deleted gives the deletions of works.
func Deleted(specs []*wire.Spec) []*wire.Spec {
	next := make([]*wire.Spec, len(specs))
	now := metav1.Now()
	for i, spec := range specs {
		deleted := *spec
		deleted.Action, deleted.Bundle, deleted.DeletionTimestamp = wire.Delete, nil, &now
		deleted.Meta.DeletionTimestamp = &now
		next[i] = &deleted
	}
	return next
}

// Applied reports whether a status says that a generation of a work is applied.
func Applied(generation wire.Generation) func(*wire.Status) bool {
	return func(s *wire.Status) bool {
		return s.Generation == generation && meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkApplied)
	}
}

// Gone reports whether a status is the last one of a deleted work.
func Gone(s *wire.Status) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, workv1.WorkDeleted)
}
