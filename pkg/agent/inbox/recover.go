package inbox

import (
	"github.com/workwire/workwire/pkg/wire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Recover adds a work that is known only from its AppliedManifestWork. It has no spec until its
// source sends one. [Inbox.Versions] lists it with generation 0, so that the source sends its spec
// or its deletion. Recover does not change a work that is already held. It reports whether the work
// is held now, which is false if another work has the name.
func (b *Inbox) Recover(key Key, cluster wire.ClusterName, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.find(key) != nil {
		return true
	}
	if s := b.works[key.Source]; s != nil {
		if _, taken := s.byName[name]; taken {
			return false
		}
	}
	b.set(&Entry{Key: key, Cluster: cluster, Meta: Meta(&wire.Spec{
		UID: key.UID, Source: key.Source, Cluster: cluster,
		Meta: metav1.ObjectMeta{Name: name, Namespace: string(cluster), UID: key.UID},
	})})
	return true
}
