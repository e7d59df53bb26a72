package wire_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// TestAboutLimits: neither side lets through what a cluster says of itself if it is too much, or cannot be stored.
func TestAboutLimits(t *testing.T) {
	claims := func(n int, value string) (all []wire.Claim) {
		for i := range n {
			all = append(all, wire.Claim{Name: fmt.Sprintf("c%02d", i), Value: value})
		}
		return all
	}
	resources := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("example.com/%d", i)] = "1"
		}
		return all
	}
	valid := map[string]wire.About{
		"nothing":         {},
		"what there is":   {Kubernetes: "v1.36.3", Capacity: map[string]string{"cpu": "1500m", "memory": "64Gi"}, Claims: claims(2, "x")},
		"no claims":       {Claims: []wire.Claim{}},
		"many claims":     {Claims: claims(wire.MaxClaims, "x")},
		"many resources":  {Capacity: resources(wire.MaxResources), Allocatable: resources(wire.MaxResources)},
		"the size":        {Claims: claims(16, strings.Repeat("x", wire.MaxClaimsSize/16-3))},
		"long characters": {Claims: claims(1, strings.Repeat("ü", wire.MaxClaimValue))},
	}
	invalid := map[string]struct {
		about wire.About
		why   string
	}{
		"too many claims":    {wire.About{Claims: claims(wire.MaxClaims+1, "x")}, "65 claims: want at most 64"},
		"claims too large":   {wire.About{Claims: claims(16, strings.Repeat("x", wire.MaxClaimsSize/16-2))}, "16400 bytes: want at most 16384"},
		"a value too long":   {wire.About{Claims: claims(1, strings.Repeat("x", wire.MaxClaimValue+1))}, "more than 1024 characters"},
		"a name too long":    {wire.About{Claims: []wire.Claim{{Name: strings.Repeat("x", 254), Value: "x"}}}, "254 bytes"},
		"no name":            {wire.About{Claims: []wire.Claim{{Value: "x"}}}, "name and value are required"},
		"no value":           {wire.About{Claims: []wire.Claim{{Name: "x"}}}, "name and value are required"},
		"a name twice":       {wire.About{Claims: []wire.Claim{{Name: "x", Value: "1"}, {Name: "x", Value: "2"}}}, "there are two"},
		"too many resources": {wire.About{Allocatable: resources(wire.MaxResources + 1)}, "65 resources"},
		"an exponent":        {wire.About{Capacity: map[string]string{"cpu": "1e2147483647"}}, "quantity"},
		"no quantity":        {wire.About{Capacity: map[string]string{"cpu": "many"}}, "quantity"},
		"a negative one":     {wire.About{Allocatable: map[string]string{"cpu": "-1"}}, "quantity"},
		"a resource name":    {wire.About{Capacity: map[string]string{strings.Repeat("x", 254): "1"}}, "254 bytes"},
		"a version":          {wire.About{Kubernetes: strings.Repeat("x", 129)}, "129 bytes"},
	}
	presence := func(a wire.About) *wire.Presence {
		return &wire.Presence{Agent: "a", Cluster: "c", Session: "s", Present: true, About: &a}
	}
	for name, about := range valid {
		e, err := wire.Encode(presence(about), time.Now())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m, err := wire.Decode(e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := m.(*wire.Presence).About
		if got.Kubernetes != about.Kubernetes || !maps.Equal(got.Capacity, about.Capacity) || (got.Claims == nil) != (about.Claims == nil) || len(got.Claims) != len(about.Claims) {
			t.Errorf("%s: %+v became %+v", name, about, got)
		}
	}
	for name, c := range invalid {
		if _, err := wire.Encode(presence(c.about), time.Now()); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: encoding: %v, want %s", name, err, c.why)
		}
		e, err := wire.Encode(presence(wire.About{}), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetData("application/json", map[string]any{"present": true, "session": "s", "about": c.about}); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Decode(e); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: decoding: %v, want %s", name, err, c.why)
		}
	}
}
