package wire

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
)

// UIDFor returns the UID of a work of a source without a Kubernetes API (docs/protocol.md, Work
// ids). It only depends on source, namespace and name.
func UIDFor(source SourceID, namespace, name string) types.UID {
	id := string(source) + "-manifestworks.work.open-cluster-management.io-" + namespace + "-" + name
	return types.UID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)).String())
}
