package applied

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/wire"
)

// HubHash returns the lower-case hex SHA-256 that identifies the origin of works: of brokerHost for
// an agent with one source, which passes an empty source, and of brokerHost/source for an agent
// with several, so that works with the same name from different sources do not conflict.
func HubHash(brokerHost string, source wire.SourceID) string {
	from := brokerHost
	if source != "" {
		from += "/" + string(source)
	}
	sum := sha256.Sum256([]byte(from))
	return hex.EncodeToString(sum[:])
}

// Name returns the name of the AppliedManifestWork of a work. It returns an error if the name is
// invalid.
func Name(hubHash, work string) (string, error) {
	name := hubHash + "-" + work
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", fmt.Errorf("the work's name %q cannot be part of the name of an AppliedManifestWork: %s; "+
			"rename the work, to at most %d characters", work, strings.Join(errs, "; "), validation.DNS1123SubdomainMaxLength-len(hubHash)-1)
	}
	return name, nil
}
