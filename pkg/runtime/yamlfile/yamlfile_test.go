package yamlfile

import (
	"strings"
	"testing"
)

func TestOneDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"a: 1":                       "",
		"---\na: 1\n...\n":           "",
		"a: 1\n---\n# nothing\n---":  "",
		"\ufeffa: 1\r\n":             "",
		"a: 1\na: 2":                 "already set",
		"a: 1\n---\nb: 2":            "something follows",
		"---\n# nothing\n---\na: 1":  "something follows",
		"{a: 1}\n{b: 2}":             "something follows",
		`{"a": 1}{"b": 2}`:           "something follows",
		"{a: 1} b":                   "something follows",
		"a: [":                       "did not find",
		"a: 1\n--- b\n---\n[c, d, e": "something follows",
	} {
		_, err := ToJSON([]byte(text))
		var into map[string]any
		decoded := Decode([]byte(text), &into)
		for _, err := range []error{err, decoded} {
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
	var known struct {
		A int `json:"a"`
	}
	if err := Decode([]byte("a: 1\nb: 2"), &known); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("an unknown field: %v", err)
	}
}
