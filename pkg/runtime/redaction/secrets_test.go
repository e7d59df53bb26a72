package redaction_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/test/kit"
)

func TestHideSecrets(t *testing.T) {
	const copied = `"kubectl.kubernetes.io/last-applied-configuration":"x"`
	for _, c := range []struct{ name, json, want string }{
		{"one", `{"kind":"Secret","data":{"a":"x"},"stringData":{"b":"x"},"type":"Opaque"}`, `{"data":{"a":"-"},"kind":"Secret","stringData":{"b":"-"},"type":"Opaque"}`},
		{"none", `{"data":{"kind":"x"},"kind":"ConfigMap"}`, `{"data":{"kind":"x"},"kind":"ConfigMap"}`},
		{"no object", `["Secret",9007199254740993,null]`, `["Secret",9007199254740993,null]`},
		{"nested", `{"spec":{"manifests":[{"data":{"a":"x"},"kind":"Secret"},{"data":{"a":"x"},"kind":"Pod"}]}}`,
			`{"spec":{"manifests":[{"data":{"a":"-"},"kind":"Secret"},{"data":{"a":"x"},"kind":"Pod"}]}}`},
		{"a List", `{"items":[{"data":{"a":"x"},"kind":"Secret"},{"data":{"a":"x"}}],"kind":"List"}`,
			`{"items":[{"data":{"a":"-"},"kind":"Secret"},{"data":{"a":"x"}}],"kind":"List"}`},
		{"a SecretList", `{"items":[{"data":{"a":"x"}},{"data":{"a":"x"},"kind":"Secret"}],"kind":"SecretList"}`,
			`{"items":[{"data":{"a":"-"}},{"data":{"a":"-"},"kind":"Secret"}],"kind":"SecretList"}`},
		{"an item that says another kind", `{"items":[{"data":{"a":"x"},"kind":"Pod"}],"kind":"SecretList"}`, `{"items":[{"data":{"a":"-"},"kind":"Pod"}],"kind":"SecretList"}`},
		{"a kind that is no text", `{"items":[{"kind":{"data":{"a":"x"},"kind":"Secret"}}],"kind":1}`, `{"items":[{"kind":{"data":{"a":"-"},"kind":"Secret"}}],"kind":1}`},
		{"values of another type", `{"data":["x"],"kind":"Secret","stringData":{"a":1}}`, `{"data":"-","kind":"Secret","stringData":{"a":"-"}}`},
		{"no values", `{"data":null,"kind":"Secret"}`, `{"data":null,"kind":"Secret"}`},
		{"annotations of a Secret", `{"kind":"Secret","metadata":{"annotations":{"a":"x"},"name":"s"}}`, `{"kind":"Secret","metadata":{"name":"s"}}`},
		{"annotations", `{"kind":"Pod","metadata":{"annotations":{"a":"x",` + copied + `}}}`, `{"kind":"Pod","metadata":{"annotations":{"a":"x"}}}`},
	} {
		got, err := redaction.HideSecrets([]byte(c.json), func(any) string { return "-" })
		kit.NoError(t, err)
		if string(got) != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got, err := redaction.HideSecrets([]byte(`{"a":`), nil); err == nil {
		t.Errorf("no JSON: %s", got)
	}
}
