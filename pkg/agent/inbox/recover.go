package inbox

import (
	"github.com/workwire/workwire/pkg/wire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Recover holds a work that is known only by what was applied for it: its spec
// is not known, and no event but one of its source changes that. It counts as
// generation 0 in [Inbox.Versions], so that the source sends it, or says that it
// is gone. It reports whether the work is held now; it is not when its name is
// taken. A work that is held already stays as it is.
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
	b.place(&Entry{Key: key, Cluster: cluster, Meta: Meta(&wire.Spec{
		UID: key.UID, Source: key.Source, Cluster: cluster,
		Meta: metav1.ObjectMeta{Name: name, Namespace: string(cluster), UID: key.UID},
	})})
	return true
}
