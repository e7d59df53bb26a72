package ownership_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
)

func TestConflictingManagers(t *testing.T) {
	live := strategytest.Decode(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","labels":{"a":"1","x/y":"2"}},"spec":{"replicas":3,
		"selector":{"matchLabels":{"s":"1"}},"template":{"spec":{"containers":[{"name":"a","image":"i","args":["x"]},{"name":"b","image":"i"}],"finalizers":["f"]}}}}`)
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		strategytest.Applied("work-agent", `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{}}}}}}}`),
		strategytest.Updated("zed", "scale", `{"f:spec":{"f:replicas":{}}}`),
		strategytest.Updated("kubectl", "", `{"f:metadata":{"f:labels":{"f:x/y":{}}},"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"b\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`),
		strategytest.Updated("kubectl", "", `{"f:spec":{"f:replicas":{}}}`),
		strategytest.Updated("editor", "", `{"f:spec":{"f:selector":{},"f:template":{"f:spec":{"f:finalizers":{"v:\"f\"":{}},"f:containers":{"k:{\"name\":\"a\"}":{"f:args":{}}}}}}}`),
		{Manager: "broken", FieldsV1: metav1.NewFieldsV1(`{"x":{}}`)}, {Manager: "empty"},
	})
	for name, test := range map[string]struct {
		differences []string
		want        string
	}{
		"none":                       {nil, ""},
		"a field of two":             {[]string{"/spec/replicas"}, "kubectl zed"},
		"a field of ours":            {[]string{"/metadata/labels/a"}, ""},
		"an escaped key":             {[]string{"/metadata/labels/x~1y"}, "kubectl"},
		"a field of an item":         {[]string{"/spec/template/spec/containers/1/image"}, "kubectl"},
		"of an item of ours":         {[]string{"/spec/template/spec/containers/0/image"}, ""},
		"an item":                    {[]string{"/spec/template/spec/containers/1"}, "kubectl"},
		"a list":                     {[]string{"/spec/template/spec/containers"}, "editor kubectl"},
		"below what is one value":    {[]string{"/spec/selector/matchLabels/s"}, "editor"},
		"in a list that is one":      {[]string{"/spec/template/spec/containers/0/args/0"}, "editor"},
		"an item of a set":           {[]string{"/spec/template/spec/finalizers/0"}, "editor"},
		"removed":                    {[]string{"/spec/paused", "/metadata/labels/gone", "/spec/template/spec/containers/7/image", "/metadata/annotations/a"}, ""},
		"below what is no container": {[]string{"/spec/replicas/a/b"}, "kubectl zed"},
		"several":                    {[]string{"/metadata/labels/a", "/spec/replicas", "/spec/selector"}, "editor kubectl zed"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(ownership.ConflictingManagers(live, test.differences, "work-agent"), " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
