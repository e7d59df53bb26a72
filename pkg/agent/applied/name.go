package applied

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/wire"
)

// HubHash is the lower-case hex SHA-256 that stands for where works come from:
// of brokerHost for an agent of one source, whose source is given empty, and of
// brokerHost/source for an agent of several, so that works of two sources with
// one name are recorded apart.
func HubHash(brokerHost string, source wire.SourceID) string {
	from := brokerHost
	if source != "" {
		from += "/" + string(source)
	}
	sum := sha256.Sum256([]byte(from))
	return hex.EncodeToString(sum[:])
}

// Name is the name of a work's AppliedManifestWork. It fails when no object can
// have that name.
func Name(hubHash, work string) (string, error) {
	name := hubHash + "-" + work
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return "", fmt.Errorf("the work's name %q can not become part of the name of an AppliedManifestWork: %s; "+
			"rename the work, to at most %d characters", work, strings.Join(faults, "; "), validation.DNS1123SubdomainMaxLength-len(hubHash)-1)
	}
	return name, nil
}
