package redaction_test

import (
	"encoding/json"
	"testing"

	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/test/kit"
)

func TestObjects(t *testing.T) {
	for _, c := range []struct {
		name, json      string
		objects, secret int
	}{
		{"one", `{"kind":"Secret","data":{"a":"x"}}`, 2, 1},
		{"none", `{"kind":"ConfigMap","data":{"kind":"x"}}`, 2, 0},
		{"no object", `["Secret",1,null]`, 0, 0},
		{"nested", `{"spec":{"workload":{"manifests":[{"kind":"Secret"},{"kind":"Pod"}]}}}`, 5, 1},
		{"a List", `{"kind":"List","items":[{"kind":"Secret"},{"data":{}}]}`, 4, 1},
		{"a SecretList", `{"kind":"SecretList","items":[{"data":{}},{"kind":"Secret"}]}`, 4, 2},
		{"an item that says another kind", `{"kind":"SecretList","items":[{"kind":"Pod"}]}`, 2, 1},
		{"a kind that is no text", `{"kind":1,"items":[{"kind":{"kind":"Secret"}}]}`, 3, 1},
	} {
		var value any
		kit.NoError(t, json.Unmarshal([]byte(c.json), &value))
		objects, secrets := 0, 0
		redaction.Objects(value, func(_ map[string]any, secret bool) {
			if objects++; secret {
				secrets++
			}
		})
		if objects != c.objects || secrets != c.secret {
			t.Errorf("%s: %d objects, %d Secrets, want %d, %d", c.name, objects, secrets, c.objects, c.secret)
		}
	}
}
