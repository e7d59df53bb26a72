package wire

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// UIDFor derives the UID of a work of a source that is backed by no Kubernetes
// API (docs/protocol.md, Work ids): the same source, namespace and name always
// give the same UID.
func UIDFor(source SourceID, namespace, name string) types.UID {
	id := string(source) + "-manifestworks.work.open-cluster-management.io-" + namespace + "-" + name
	return types.UID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)).String())
}
