package wire

import (
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// Limits of [About]. A cluster chooses its content, and the hub stores it.
const (
	// MaxClaims is the maximum number of claims of a cluster.
	MaxClaims = 64
	// MaxClaimsSize is the maximum number of bytes of their names and values together.
	MaxClaimsSize = 16 << 10
	// MaxClaimValue is the maximum number of characters of the value of a claim, as in the API.
	MaxClaimValue = 1_024
	// MaxResources is the maximum number of resources of a capacity.
	MaxResources = 64
	// maxVersion is the maximum number of bytes of a version.
	maxVersion = 128
)

// quantityShape is that of the quantities that agents send. It leaves out exponents, which take a parser as much
// time as their sender wants.
var quantityShape = regexp.MustCompile(`^[0-9]{1,19}([numkMGTPE]|[KMGTPE]i)?$`)

// About is what a cluster says of itself (docs/protocol.md, Presence). A field that is empty, or nil, is not known.
type About struct {
	// Kubernetes is the version of the API server, such as v1.36.3.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Capacity is the sum of what the nodes have, by resource.
	Capacity map[string]string `json:"capacity,omitzero"`
	// Allocatable is the part of Capacity that pods can use.
	Allocatable map[string]string `json:"allocatable,omitzero"`
	// Claims are all claims of the cluster, each name once.
	Claims []Claim `json:"claims,omitzero"`
}

// Claim is a property of a cluster.
type Claim struct {
	// Name of the claim: 1 to 253 bytes.
	Name string `json:"name"`
	// Value of the claim: 1 to [MaxClaimValue] characters.
	Value string `json:"value"`
}

// IsQuantity reports whether [About] may have text as a quantity.
func IsQuantity(text string) bool { return quantityShape.MatchString(text) }

// Fault returns why [About] may not have c; nil if it may.
func (c Claim) Fault() error {
	switch {
	case c.Name == "" || c.Value == "":
		return fmt.Errorf("claim %.80q: name and value are required", c.Name)
	case len(c.Name) > maxName:
		return tooLong("claim", c.Name, maxName)
	case utf8.RuneCountInString(c.Value) > MaxClaimValue:
		return fmt.Errorf("claim %s: the value has more than %d characters", c.Name, MaxClaimValue)
	default:
		return nil
	}
}

// check returns an error if a is too large, or is not what the API server stores. Nil is fine.
func (a *About) check() error {
	if a == nil {
		return nil
	}
	if len(a.Kubernetes) > maxVersion {
		return tooLong("version", a.Kubernetes, maxVersion)
	}
	return errors.Join(checkResources("capacity", a.Capacity), checkResources("allocatable", a.Allocatable), checkClaims(a.Claims))
}

func checkResources(what string, resources map[string]string) error {
	if len(resources) > MaxResources {
		return fmt.Errorf("%s has %d resources: want at most %d", what, len(resources), MaxResources)
	}
	for name, quantity := range resources {
		switch {
		case name == "" || len(name) > maxName:
			return fmt.Errorf("%s: resource %.80q has %d bytes: want 1 to %d", what, name, len(name), maxName)
		case !IsQuantity(quantity):
			return fmt.Errorf("%s of %s: quantity %.80q: want %s", what, name, quantity, quantityShape)
		}
	}
	return nil
}

func checkClaims(claims []Claim) error {
	if len(claims) > MaxClaims {
		return fmt.Errorf("%d claims: want at most %d", len(claims), MaxClaims)
	}
	size, names := 0, make(map[string]bool, len(claims))
	for _, c := range claims {
		if err := c.Fault(); err != nil {
			return err
		}
		if names[c.Name] {
			return fmt.Errorf("claim %s: there are two", c.Name)
		}
		names[c.Name] = true
		size += len(c.Name) + len(c.Value)
	}
	if size > MaxClaimsSize {
		return fmt.Errorf("the claims have %d bytes: want at most %d", size, MaxClaimsSize)
	}
	return nil
}
