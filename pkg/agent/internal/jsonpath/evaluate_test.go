package jsonpath

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// library evaluates an expression as kubectl would.
func library(expression string, object any) (found []any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	path := jsonpath.New("test").AllowMissingKeys(true)
	if err := path.Parse("{" + expression + "}"); err != nil {
		return nil, err
	}
	results, err := path.FindResults(object)
	for _, matches := range results {
		for _, match := range matches {
			found = append(found, match.Interface())
		}
	}
	return found, err
}

// find evaluates an expression with a large budget.
func find(expression string, object any) ([]any, error) {
	path, err := Parse(expression)
	if err != nil {
		return nil, err
	}
	budget := Budget(1_000_000)
	return path.Find(object, &budget)
}

func texts(t *testing.T, values []any) []string {
	t.Helper()
	list := make([]string, len(values))
	for i, value := range values {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = fmt.Sprintf("%T %s", value, encoded)
	}
	return list
}

// compare holds what we find against what the library finds. Fields that a wildcard matches have no
// order there.
func compare(t *testing.T, expression string, object map[string]any) (errored bool) {
	t.Helper()
	want, wantErr := library(expression, object)
	got, err := find(expression, object)
	if (err == nil) != (wantErr == nil) {
		t.Errorf("%s: error %v, the library's %v", expression, err, wantErr)
		return true
	}
	unordered := strings.Contains(expression, "*") || strings.Contains(expression, "..")
	if err != nil {
		if !unordered && !strings.Contains(wantErr.Error(), "cannot be filtered") && !strings.HasSuffix(err.Error(), wantErr.Error()) {
			t.Errorf("%s: error %v, the library's %v", expression, err, wantErr)
		}
		return true
	}
	a, b := texts(t, got), texts(t, want)
	if unordered {
		slices.Sort(a)
		slices.Sort(b)
	}
	if !slices.Equal(a, b) {
		t.Errorf("%s: %v, the library's %v", expression, a, b)
	}
	return false
}

const zoo = `{"a":{"b":[{"n":"x","p":1,"c":[{"n":"y","p":2},{"n":"z","p":3}]},{"n":"y","p":2,"c":[{"n":"x","p":1}]},{"n":"z","p":3.5,"c":[1]}],
	"n":"deep","f":true,"l":[[1,2],[3]],"p":7},"n":"top","p":-1,"k.d/e":"dotted"}`

func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestEvaluateAsTheLibrary(t *testing.T) {
	object := parsed(t, zoo)
	for _, expression := range []string{
		"", ".", "@", "$", ".n", "$.n", "@.n", ".a.b[0].n", ".a.b[-1].n", ".a.b[-3].n", ".a.b[-4].n", ".a.b[3]", ".a.b[0:2].n", ".a.b[1:].p", ".a.b[:1].p",
		".a.b[::2].p", ".a.b[0:0]", ".a.b[2:1]", ".a.b[0:9]", ".a.b[::0]", ".a.b[::-1]", ".a.b[1::9223372036854775807].p", ".a.b[1:2:9223372036854775807].n", ".a.b[5:5]", ".a.b[0,2].n", ".a['n','p']", ".a.b[*].c[*].n", ".a.l[*][*]", ".a.l[0][1]",
		".n[0]", ".n.x", ".a.b.n", ".a.b.c[0]", ".a.*", ".a.b.*", ".a.b.*.n", "..n", "..c..n", ".a..p", ".a.b[?(@.n)].p", ".a.b[?(@.n=='y')].p", `.a.b[?(@.n=="y")].p`,
		".a.b[?(@.p>1)].n", ".a.b[?(@.p>=2)].n", ".a.b[?(@.p<2)].n", ".a.b[?(@.p<=1)].n", ".a.b[?(@.p!=1)].n", ".a.b[?(@.p==3.5)].n", ".a.b[?(@.n>'x')].p", ".a.b[?(@.n==@.n)].p",
		".a.b[?(@.c[*].n=='x')].p", ".a.b[?(@.c[0].n=='x')].p", ".a.b[?(@.q==1)]", ".a.b[?(@.q)]", ".a.b[?(@.c)].n", ".a[?(@.n=='x')]", ".n[?(@.n)]", ".a.b[?(@.n=~'x')]", ".a.b[?(@.n==true)]",
		".a.l[?(@[0]==1)]", `['k.d/e']`, `.k\.d/e`, "'text'",
		"spec.replicas", ".a.range", ".a.b[range]", "5", "1.5", "true", ".a[", ".a[?(", ".a[?(@.b)", ".a[x]", "{", "'}'", ".a.b[?(@.n=='}{')]", ".a.b[?(@.c[?(@.n=='x')])].n",
	} {
		compare(t, expression, object)
	}
}

// TestOnePath: an expression is one path, and no template.
func TestOnePath(t *testing.T) {
	for _, expression := range []string{".n}{.p", ".n} and {.p", ".n}.p", "}", "range .a.b[*]}{.n}{end"} {
		if _, err := Parse(expression); err == nil || err.Error() != "it has braces: give one path, without them" {
			t.Errorf("%s: error %v", expression, err)
		}
	}
}

// TestEvaluateRandomPaths lets chance write expressions.
func TestEvaluateRandomPaths(t *testing.T) {
	object := parsed(t, zoo)
	steps := []string{".a", ".b", ".c", ".n", ".p", ".l", ".f", ".q", "[0]", "[1]", "[-1]", "[*]", "[0:2]", "[1:]", "[0,1]", "['n','p']", ".*", "..n", "..c",
		"[?(@.n=='x')]", "[?(@.p>1)]", "[?(@.c)]", "[?(@.c[0].n=='y')]", "[?(@.p==@.p)]"}
	errored, matched := 0, 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		expression := ""
		if rng.IntN(2) == 0 {
			expression = ".a.b"
		}
		for range 1 + rng.IntN(4) {
			expression += steps[rng.IntN(len(steps))]
		}
		if strings.Count(expression, "..") > maxDescents || strings.Contains(expression, ".n.*") || strings.Contains(expression, ".*.*") ||
			strings.Contains(expression, "'].*") || strings.Contains(expression, "..n") && strings.Contains(expression, ".*") {
			continue // the library takes texts to pieces
		}
		if compare(t, expression, object) {
			errored++
		} else if found, _ := library(expression, object); len(found) > 0 {
			matched++
		}
	}
	if errored < 100 || matched < 500 {
		t.Errorf("%d errors, %d matches: too few to tell", errored, matched)
	}
}

// TestEvaluateUnlikeTheLibrary is about where the two differ on purpose.
func TestEvaluateUnlikeTheLibrary(t *testing.T) {
	secret := "do not print this"
	object := parsed(t, `{"z":"z","y":"y","x":{"c":"c","b":"b"},"empty":[{"l":[]},{"l":[1]}],"null":null,"data":{"password":"`+secret+`"},
		"conditions":[{"type":null,"status":"0"},{"type":"Ready","status":"1"},{"status":"2"}]}`)
	for _, c := range []struct{ expression, want, err string }{
		{".x.*", `["b","c"]`, ""},
		{"..b", `["b"]`, ""},
		{".z.*", "null", ""},
		{".empty[*].l[*]", "[1]", ""},
		{".null[?(@.a=='b')]", "null", ""},
		{".null[0]", "null", ""},
		{"range .z", "", "unrecognized identifier range"},
		{".null.a.b", "null", ""},
		{".null", "[null]", ""},
		{".conditions[?(@.type=='Ready')].status", `["1"]`, ""},
		{".conditions[?(@.type!='Ready')].status", "null", ""},
		{".data[?(@.a=='b')]", "", "map[string]interface {} is not array or slice and cannot be filtered"},
	} {
		for range 20 { // whatever the order of a map is just now
			found, err := find(c.expression, object)
			if got := fmt.Sprint(err); err != nil && (got != c.err || strings.Contains(got, secret)) || err == nil && c.err != "" {
				t.Fatalf("%s: error %v, want %q", c.expression, err, c.err)
			}
			if len(found) == 0 {
				found = nil
			}
			if got, _ := json.Marshal(found); err == nil && string(got) != c.want {
				t.Fatalf("%s: %s, want %s", c.expression, got, c.want)
			}
		}
	}
}
