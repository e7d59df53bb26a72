package hub_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
)

// TestProfilesWithoutDefinition: an API without ClusterProfiles keeps a hub that is told to write some from being ready, which says what
// to do, and from nothing else.
func TestProfilesWithoutDefinition(t *testing.T) {
	w := newWorld(t)
	r := w.startHub(func(c *hub.Config) {
		c.Controllers, c.ClusterProfiles = []string{hub.ControllerClusters}, w.namespace
	})
	awaitCheck(t, r, "clusterprofiles", "deploy/crds/optional")
	w.startAgent(nil)
	w.create("w")
	w.Applied(w.works, "w")
}

func TestProfilesConfig(t *testing.T) {
	for _, c := range []struct {
		config hub.Config
		want   string
	}{
		{hub.Config{Source: "hub1", ClusterProfiles: "inventory"}, ""},
		{hub.Config{Source: "hub1", ClusterProfiles: "inventory", Controllers: []string{"*", "-" + hub.ControllerClusters}}, "ClusterProfiles needs the controller clusters"},
		{hub.Config{Source: "hub1", ClusterProfiles: "No/Namespace"}, "ClusterProfiles must be a namespace"},
		{hub.Config{Source: wire.SourceID(strings.Repeat("h", 60)), ClusterProfiles: "inventory"}, "at most 63 characters"},
	} {
		var all []string
		for _, err := range c.config.Validate() {
			all = append(all, err.Error())
		}
		if text := strings.Join(all, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%+v: %q, want %q", c.config, text, c.want)
		}
	}
}
