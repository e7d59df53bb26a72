package hub_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/hub"
)

func TestChooseControllers(t *testing.T) {
	for list, want := range map[string]string{
		"*":                 "clusters clustersets placement replicaset ttl",
		"":                  "",
		"ttl":               "ttl",
		"ttl placement ttl": "placement ttl",
		"* -placement":      "clusters clustersets replicaset ttl",
		"-placement *":      "clusters clustersets replicaset ttl",
		"ttl -ttl":          "",
	} {
		got, err := hub.ChooseControllers(strings.Fields(list))
		if err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q gives %v, %v; want %q", list, got, err, want)
		}
	}
	_, err := hub.ChooseControllers([]string{"*", "-placements", "everything"})
	if err == nil || !strings.Contains(err.Error(), `"placements"`) || !strings.Contains(err.Error(), `"everything"`) {
		t.Errorf("the error is %v", err)
	}
}
