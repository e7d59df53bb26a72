package v1_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	strictjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestConditionRuleExpressions(t *testing.T) {
	tests := map[string]struct {
		json string
		want []string
	}{
		"none":               {`{"type":"CEL","celExpressions":[]}`, nil},
		"null":               {`{"type":"CEL","celExpressions":null}`, nil},
		"strings":            {`{"type":"CEL","celExpressions":["a","", "b > 1"]}`, []string{"a", "", "b > 1"}},
		"objects":            {`{"type":"CEL","celExpressions":[{"expression":"a"},{"expression":""}]}`, []string{"a", ""}},
		"mixed":              {`{"type":"CEL","celExpressions":["a",{"expression":"b"}]}`, []string{"a", "b"}},
		"other values":       {`{"type":"CEL","celExpressions":[1,null,[true]]}`, []string{"1", "null", "[true]"}},
		"other objects":      {`{"type":"CEL","celExpressions":[{"Expression":"a"}]}`, []string{`{"Expression":"a"}`}},
		"expression no text": {`{"type":"CEL","celExpressions":[{"expression":1}]}`, []string{`{"expression":1}`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, CelExpressions: test.want}
			for decoder, unmarshal := range map[string]func([]byte, any) error{
				"encoding/json": json.Unmarshal, "apimachinery": kubejson.Unmarshal,
			} {
				got := workv1.ConditionRule{CelExpressions: []string{"left over"}}
				if err := unmarshal([]byte(test.json), &got); err != nil {
					t.Fatalf("%s: %v", decoder, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", decoder, diff)
				}
			}
		})
	}
}

func TestUnknownFieldsOfConditionRules(t *testing.T) {
	var rule workv1.ConditionRule
	text := `{"type":"CEL","celExpression":["a"],"celExpressions":["a",{"expression":"b","more":1}],"message":"a","message":"b"}`
	unknown, err := strictjson.UnmarshalStrict([]byte(text), &rule)
	if err != nil || len(unknown) != 2 {
		t.Errorf("%s: strict errors %v, error %v", text, unknown, err)
	}
}

// FuzzConditionRule checks that no shape of celExpressions makes a rule unreadable or changes their number, and that
// what was read is written and read again without change.
func FuzzConditionRule(f *testing.F) {
	f.Add(`"object.spec.a == 1"`)
	f.Add(`{"expression":"true"}`)
	f.Add(`{"expression":"a","expression":"b"}`)
	f.Add(`[{"expression":null}]`)
	f.Add(`null`)
	f.Add(`-1e999`)
	f.Add(`"\ud800"`)
	f.Fuzz(func(t *testing.T, item string) {
		if !json.Valid([]byte(item)) || !utf8.ValidString(item) {
			t.Skip("not JSON text")
		}
		var rule workv1.ConditionRule
		text := `{"condition":"Complete","type":"CEL","celExpressions":["true",` + item + `]}`
		if err := kubejson.Unmarshal([]byte(text), &rule); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if rule.Condition != "Complete" || len(rule.CelExpressions) != 2 || rule.CelExpressions[0] != "true" {
			t.Fatalf("%s read as %+v", text, rule)
		}
		again, err := json.Marshal(rule)
		if err != nil {
			t.Fatal(err)
		}
		var back workv1.ConditionRule
		if err := kubejson.Unmarshal(again, &back); err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(back); err != nil || string(second) != string(again) {
			t.Fatalf("%s became %s (%v)", again, second, err)
		}
	})
}
