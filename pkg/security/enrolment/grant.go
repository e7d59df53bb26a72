package enrolment

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/wire"
)

// Grant is what the hub keeps of a token. Who reads it cannot join with it.
type Grant struct {
	// PublicKey proves the token.
	PublicKey ed25519.PublicKey `json:"publicKey"`
	// Expires is when it ends.
	Expires time.Time `json:"expires"`
	// Uses is how many clusters may join with it; Clusters are their names, Prefix how their names begin; without both, any.
	Uses     int                `json:"uses"`
	Clusters []wire.ClusterName `json:"clusters,omitempty"`
	Prefix   string             `json:"prefix,omitempty"`
	// Replace lets a device take a name of Clusters from the one that has joined with it.
	Replace bool `json:"replace,omitempty"`
	// Approve has the hub approve the requests of its holders.
	Approve bool `json:"approve"`
	// Labels are those of the ManagedClusters that it makes.
	Labels map[string]string `json:"labels,omitempty"`
}

// ID is [Token.ID].
func (g Grant) ID() string { return idOf(g.PublicKey) }

// Validate returns every fault of g at a time.
func (g Grant) Validate(now time.Time) error {
	var errs []error
	if len(g.PublicKey) != ed25519.PublicKeySize {
		errs = append(errs, errors.New("publicKey is none"))
	}
	if g.Uses < 1 {
		errs = append(errs, fmt.Errorf("uses must be at least 1, got %d", g.Uses))
	}
	if !g.Expires.After(now) {
		errs = append(errs, errors.New("expires must be in the future"))
	}
	if len(g.Clusters) > 0 && g.Prefix != "" {
		errs = append(errs, errors.New("name the clusters or give the prefix of their names, not both"))
	}
	if g.Replace && len(g.Clusters) == 0 {
		errs = append(errs, errors.New("replace needs the names of the clusters"))
	}
	if g.Replace && !g.Approve {
		errs = append(errs, errors.New("replace needs approve: the device before is cut off when the new one asks, not when somebody approves it"))
	}
	for _, name := range append(slices.Clone(g.Clusters), wire.ClusterName(strings.TrimSuffix(g.Prefix, "-"))) {
		if name != "" && !validName(name) {
			errs = append(errs, fmt.Errorf("%q is no name of a cluster: use a-z, 0-9 and -, at most 63 characters", name))
		}
	}
	return errors.Join(errs...)
}

// validName reports whether a name is valid as that of a cluster and of a namespace.
func validName(name wire.ClusterName) bool { return len(validation.IsDNS1123Label(string(name))) == 0 }
