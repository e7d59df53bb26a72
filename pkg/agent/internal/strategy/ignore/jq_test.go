package ignore

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func decoded(t testing.TB, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func remove(t testing.TB, expression, text string) (string, error) {
	t.Helper()
	fields, err := Compile(nil, []workv1.IgnoreField{{JQPathExpressions: []string{expression}}})
	if err != nil {
		return "", err
	}
	content, err := fields.Remove(decoded(t, text))
	if err != nil {
		return "", err
	}
	left, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(left), nil
}

// TestExpressionsThatSelect: what people select with is available.
func TestExpressionsThatSelect(t *testing.T) {
	const text = `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"},{"i":"y/side:2","n":"side"}],"k":[1,2,3]}`
	for expression, want := range map[string]string{
		`.a.x`:                                `{"a":{"y":"2"},"l":[{"i":"x/app:1","n":"app"},{"i":"y/side:2","n":"side"}],"k":[1,2,3]}`,
		`.l[] | select(.n | test("^S"; "i"))`: `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"}],"k":[1,2,3]}`,
		`.l[] | select(.n as $n | ["side","b"] | index($n))`:                     `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"}],"k":[1,2,3]}`,
		`.l[] | select(.n | IN("side", "b"))`:                                    `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"}],"k":[1,2,3]}`,
		`.l[] | select(.i | split("/") | .[0] == "y")`:                           `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"}],"k":[1,2,3]}`,
		`.l[] | select(contains({"n":"sid"})) | .i, .n`:                          `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"},{}],"k":[1,2,3]}`,
		`.. | select(type == "object" and has("n")) | .i?`:                       `{"a":{"x":"1","y":"2"},"l":[{"n":"app"},{"n":"side"}],"k":[1,2,3]}`,
		`.a | keys[] as $k | select($k | startswith("y")) | .[$k]`:               `{"a":{"x":"1"},"l":[{"i":"x/app:1","n":"app"},{"i":"y/side:2","n":"side"}],"k":[1,2,3]}`,
		`.k[1:], (if .a.x == "1" then .a else .l end), (try .a.x.y catch empty)`: `{"l":[{"i":"x/app:1","n":"app"},{"i":"y/side:2","n":"side"}],"k":[1]}`,
		`first(.l[]) | .n // .i, .i`:                                             `{"a":{"x":"1","y":"2"},"l":[{},{"i":"y/side:2","n":"side"}],"k":[1,2,3]}`,
		`.k[536870911], .k[-1]`:                                                  `{"a":{"x":"1","y":"2"},"l":[{"i":"x/app:1","n":"app"},{"i":"y/side:2","n":"side"}],"k":[1,2]}`,
	} {
		got, err := remove(t, expression, text)
		if wanted, _ := json.Marshal(decoded(t, want)); err != nil || got != string(wanted) {
			t.Errorf("%s: %s, %v, want %s", expression, got, err, wanted)
		}
	}
}

// TestExpressionsThatCost: what makes values larger, or runs on, is refused before it does.
func TestExpressionsThatCost(t *testing.T) {
	for expression, want := range map[string]string{
		`"x" * 1000000000 | .a`:                  "the operator * is not available",
		`. + .`:                                  "the operator + is not available",
		`. - .`:                                  "the operator - is not available",
		`.a |= .`:                                "the operator |= is not available",
		`[.., ..]`:                               "a list or object that is not constant is not available",
		`{(.a): .}`:                              "a list or object that is not constant is not available",
		`{a: .}`:                                 "a list or object that is not constant is not available",
		`. as $a | {$a}`:                         "a list or object that is not constant is not available",
		`"\(.)\(.)"`:                             `\( ) in a string is not available`,
		`."\(.)"`:                                `\( ) in a string is not available`,
		`. as {"\(.)": $x} | .a`:                 `\( ) in a string is not available`,
		`reduce range(1000000000) as $i (0; .)`:  "reduce is not available",
		`foreach range(1000000000) as $i (0; .)`: "foreach is not available",
		`label $out | break $out`:                "label is not available",
		`range(1000000000)`:                      "range/1 is not available",
		`last(repeat(.))`:                        "repeat/1 is not available",
		`recurse(.; true)`:                       "recurse/2 is not available",
		`def f: f; f`:                            "def is not available",
		`(def select(f): repeat(f); .) | select(.)`: "def is not available",
		`.a | @base64`:                  "@base64 is not available",
		`@json "x"`:                     "@json is not available",
		`.a | tojson`:                   "tojson/0 is not available",
		`join("x")`:                     "join/1 is not available",
		`setpath(["a", 1000000000]; 1)`: "setpath/2 is not available",
		`gsub("a"; "b")`:                "gsub/2 is not available",
		`$ENV.PATH`:                     "$ENV/0 is not available",
		`$__loc__`:                      "$__loc__",
		`guarded_contains(1)`:           "function not defined: guarded_contains/1",
		strings.Repeat(`keys as $k | `, 9) + `.a`:                "it has 9 functions that copy",
		strings.Repeat(`.a | `, 1000) + `.a`:                     "it has 5002 bytes, at most 4096 are allowed",
		strings.Repeat("..|", 30) + "empty":                      "it takes too many steps",
		`.big | contains(.)`:                                     "",
		`.big | test(".*.*.*.*=.*.*[a-z]{100}")`:                 "it takes too many steps: the values are too large",
		`.long | index(.)`:                                       "it takes too many steps: the values are too large",
		`.big | split("")`:                                       "it takes too many steps: the values are too large",
		`.. as $a | .. as $b | .. as $c | select($a == $b) | .a`: "it takes too many steps",
	} {
		content := map[string]any{"a": "1", "big": strings.Repeat("x", 400_000), "long": make([]any, 3000), "deep": deep(100)}
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		began, before := time.Now(), allocated()
		_, err = remove(t, expression, string(text))
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: error %v, want %s", expression, err, want)
		}
		if grown := allocated() - before; grown > 256<<20 {
			t.Errorf("%.60s: %d bytes allocated in %s", expression, grown, time.Since(began))
		}
	}
}

func deep(levels int) any {
	if levels == 0 {
		return "bottom"
	}
	return map[string]any{"n": deep(levels - 1)}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestErrorsWithoutValues: errors of jq name no values.
func TestErrorsWithoutValues(t *testing.T) {
	const secret = "hunter2: is it"
	text := fmt.Sprintf(`{"a":%q,"n":7,"l":[%[1]q]}`, secret)
	for expression, want := range map[string]string{
		`.a[]`:                         "cannot iterate over: string",
		`.a.b`:                         "expected an object but got: string",
		`.l["x"]`:                      "expected an object but got: array",
		`.l.x`:                         "expected an object but got: array",
		`.l[.a]`:                       "expected an object but got: array",
		`.a | keys`:                    "keys cannot be applied to a value of this kind",
		`.n | startswith("x")`:         "startswith cannot be applied to a value of this kind",
		`.a as $a | .n | contains($a)`: "it fails",
		`.a | tonumber`:                "tonumber cannot be applied to a value of this kind",
		`.a as $a | $a | test($a)`:     "",
		`.a as $a | $a`:                "invalid path: it selects a value that is not part of the manifest",
	} {
		_, err := remove(t, expression, text)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", expression, err, want)
		}
	}
}

// TestPathBudget: a JSONPath in ignoreFields that visits too much fails the manifest.
func TestPathBudget(t *testing.T) {
	fields, err := Compile(nil, []workv1.IgnoreField{{JSONPaths: []string{"..x..x..x.y", "[" + strings.Repeat("'m',", 1000) + "'m'].x"}}})
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{"m": map[string]any{}}
	for i := range 2000 {
		content["m"].(map[string]any)[fmt.Sprint("k", i)] = map[string]any{"x": map[string]any{"x": deep(5)}}
	}
	if _, err := fields.Remove(content); err != nil {
		t.Errorf("what is affordable: %v", err)
	}
	fields, err = Compile(nil, []workv1.IgnoreField{{JSONPaths: []string{"['m'" + strings.Repeat(",'m'", 300) + "]..x.y"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fields.Remove(content); err == nil || !strings.Contains(err.Error(), "it visits too many values") {
		t.Errorf("error %v, want that it visits too many values", err)
	}
}

// FuzzExpression: no expression takes much longer, or more memory, than its budget.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`.a`, `.l[] | select(.n == "x")`, `..`, `.. | .. | .a?`, `"x" * 9`, `[limit(9; repeat(.))]`, `. as [$a, {b: $c}] | $a`, `if . then . else empty end`,
		`test("(a*)*b")`, `contains(.)`, `try .a catch .`, `.a // .b`, `path(..)`, `getpath(["a", 0])`, `del(.a)`, `{"a": [1, -2, "x"]}`, `.[1:2]`, `.["a"]?`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		before := allocated()
		_, _ = remove(t, expression, `{"a":{"b":[1,2,{"c":"x"}]},"l":[{"n":"x"},{"n":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}],"s":"aaaaaaaaaaaaaaaaaaaaaaaaaaa"}`)
		if grown := allocated() - before; grown > 512<<20 {
			t.Errorf("%q allocated %d bytes", expression, grown)
		}
	})
}
