package test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const (
	definitionFile = "../../deploy/crds/work.open-cluster-management.io_manifestworks.yaml"
	definitionName = "crd/manifestworks.work.open-cluster-management.io"
	describe       = `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/description","value":"of another release"}]`
	worksPath      = "/apis/work.open-cluster-management.io/v1/namespaces/NAMESPACE/manifestworks"

	object = `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"NAME","labels":{"a":"b"}},"spec":{"workload":{"manifests":[` +
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"number":1,"list":[1.5,null,"<&>"],"big":9007199254740993}}]}}}`
	everyDefault = `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"defaults"},"spec":{"deleteOption":{},` +
		`"workload":{"manifests":[{"kind":"Secret"}]},"manifestConfigs":[{"resourceIdentifier":{"resource":"secrets","name":"x"},` +
		`"updateStrategy":{"type":"ServerSideApply","serverSideApply":{"ignoreFields":[{"jsonPaths":[".data"]}]}}},` +
		`{"resourceIdentifier":{"group":"","resource":"secrets","name":"y","namespace":""},"updateStrategy":{}}]}}`
	conditions = `[{"type":"Applied","status":"True","reason":"Done","message":"all","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1}]`
	status     = `{"conditions":` + conditions + `,"resourceStatus":{"manifests":[{"conditions":` + conditions +
		`,"resourceMeta":{"ordinal":0,"group":"","version":"v1","kind":"ConfigMap","resource":"configmaps","name":"x","namespace":""},` +
		`"statusFeedback":{"values":[{"name":"n","fieldValue":{"type":"Integer","integer":0}},{"name":"b","fieldValue":{"type":"Boolean","boolean":false}}]}}]}}`
)

// named is object with another name.
func named(name string) string { return strings.Replace(object, "NAME", name, 1) }

// withRule is named with a condition rule that misspells two fields.
func withRule(name string) string {
	return strings.Replace(named(name), `"spec":{`, `"spec":{"manifestConfigs":[{"resourceIdentifier":{"resource":"configmaps","name":"x"},"conditionRules":[`+
		`{"type":"CEL","condition":"Complete","celExpression":["false"],"celExpressions":["true"],"mesage":"x"}]}],`, 1)
}

func withStatus(status string) string {
	return `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"a","resourceVersion":"CURRENT"},"status":` + status + `}`
}

// A step is a request that a client may make. CURRENT in its body stands for the version of work a. The errors differ of what
// a type has no room for, and are errors in both.
type step struct {
	method, path, kind, body, accept string
	differs                          bool
}

// What all clients of works may ask for, right and wrong in one way each: an API server names several errors in any order.
var steps = []step{
	{method: "POST", body: named("a")},
	{method: "POST", body: named("a")},
	{method: "POST", path: "?dryRun=All", body: named("dry")},
	{method: "POST", body: everyDefault},
	{method: "POST", body: strings.Replace(named("empty"), `"manifests":[`, `"manifests":[],"were":[`, 1)},
	{method: "POST", path: "?fieldValidation=Strict", body: strings.Replace(named("strict"), `"spec":{`, `"spec":{"more":1,`, 1)},
	{method: "POST", path: "?fieldValidation=Strict", body: withRule("strict-rule")},
	{method: "POST", body: withRule("warned-rule")},
	{method: "POST", path: "?fieldValidation=Ignore", body: strings.Replace(named("pruned"), `"spec":{`, `"spec":{"more":1,`, 1)},
	{method: "POST", body: strings.Replace(named("enum"), `"spec":{`, `"spec":{"deleteOption":{"propagationPolicy":"Perhaps"},`, 1)},
	{method: "POST", body: strings.Replace(named("rule"), `"spec":{`, `"spec":{"executor":{"subject":{"type":"ServiceAccount"}},`, 1)},
	{method: "POST", body: strings.Replace(named("unnamed"), `"spec":{`, `"spec":{"manifestConfigs":[{"resourceIdentifier":{"resource":"secrets"}}],`, 1), differs: true},
	{method: "POST", body: strings.Replace(named("null"), `"manifests":[`, `"manifests":[null,"text",`, 1)},
	{method: "POST", body: named("Not_A_Name")},
	{method: "POST", body: named(strings.Repeat("n", 300))},
	{method: "POST", body: strings.Replace(named("kind"), "ManifestWork", "OtherWork", 1), differs: true},
	{method: "POST", body: strings.Replace(named("type"), `"spec":{`, `"spec":{"deleteOption":{"ttlSecondsAfterFinished":"x"},`, 1), differs: true},
	{method: "POST", body: strings.Replace(named("number"), `"number":1`, `"number":1e400`, 1), differs: true},
	{method: "POST", body: "rubbish"},
	{method: "POST", body: strings.Replace(named("status"), `"spec":`, `"status":`+status+`,"spec":`, 1)},
	{method: "GET", path: "/a"},
	{method: "GET", path: "/absent"},
	{method: "GET", path: "/a/status"},
	{method: "GET", path: "/a/scale"},
	{method: "GET", path: "?labelSelector=a%3Db"},
	{method: "GET", path: "?fieldSelector=metadata.name%3Ddefaults"},
	{method: "GET", path: "?fieldSelector=spec.other%3Dx", differs: true},
	{method: "GET", path: "?watch=true&resourceVersion=0&timeoutSeconds=1"},
	{method: "GET", accept: "application/json;as=Table;v=v1;g=meta.k8s.io"},
	{method: "GET", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	{method: "GET", accept: "application/vnd.kubernetes.protobuf"},
	{method: "GET", accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	{method: "PUT", path: "/a", body: named("a")},
	{method: "PUT", path: "/a", body: strings.Replace(named("a"), `"name"`, `"resourceVersion":"1","name"`, 1)},
	{method: "PUT", path: "/a", body: strings.Replace(strings.Replace(named("a"), `"name"`, `"resourceVersion":"CURRENT","name"`, 1), `"kind":"ConfigMap","apiVersion":"v1"`, `"apiVersion":"v1", "kind":"ConfigMap"`, 1)},
	{method: "PUT", path: "/a", body: strings.Replace(strings.Replace(named("a"), `"name"`, `"resourceVersion":"CURRENT","name"`, 1), `"number":1`, `"number":2`, 1)},
	{method: "PUT", path: "/a", body: strings.Replace(strings.Replace(named("a"), `"name"`, `"resourceVersion":"CURRENT","managedFields":[],"name"`, 1), `"number":1`, `"number":1e400`, 1), differs: true},
	{method: "PUT", path: "/absent", body: named("absent")},
	{method: "PATCH", path: "/a", kind: "application/json-patch+json", body: `[{"op":"replace","path":"/spec/workload/manifests/0/data/number","value":3}]`},
	{method: "PATCH", path: "/a", kind: "application/json-patch+json", body: `[{"op":"test","path":"/metadata/name","value":"b"}]`},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"metadata":{"labels":{"c":"d"}},"status":` + status + `}`},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"spec":{"deleteOption":{"propagationPolicy":"Perhaps"}}}`},
	{method: "PATCH", path: "/a", kind: "application/strategic-merge-patch+json", body: `{}`},
	{method: "PATCH", path: "/applied?fieldManager=one", kind: "application/apply-patch+yaml", body: named("applied")},
	{method: "PATCH", path: "/applied?fieldManager=two", kind: "application/apply-patch+yaml", body: strings.Replace(named("applied"), `"number":1`, `"number":2`, 1)},
	{method: "PATCH", path: "/applied?fieldManager=two&force=true", kind: "application/apply-patch+yaml", body: strings.Replace(named("applied"), `"number":1`, `"number":2`, 1)},
	{method: "PATCH", path: "/missing/status?fieldManager=one", kind: "application/apply-patch+yaml", body: named("missing")},
	{method: "PUT", path: "/a/status", body: withStatus(status)},
	{method: "PUT", path: "/a/status", body: strings.Replace(withStatus(status), `"status":{`, `"spec":{"workload":{}},"status":{`, 1)},
	{method: "PUT", path: "/a/status", body: withStatus(strings.Replace(status, `"True"`, `"Maybe"`, 1))},
	{method: "PUT", path: "/a/status", body: withStatus(strings.Replace(status, `"reason":"Done"`, `"reason":"not a reason"`, 1))},
	{method: "PUT", path: "/a/status", body: withStatus(`{"resourceStatus":{"manifests":[{"conditions":null,"resourceMeta":{"ordinal":0}}]}}`)},
	{method: "PUT", path: "/a/status", body: withStatus(status)},
	{method: "PATCH", path: "/a/status", kind: "application/merge-patch+json", body: `{"metadata":{"labels":{"no":"way"}},"status":{"observedGeneration":7}}`},
	{method: "PATCH", path: "/a/status", kind: "application/json-patch+json", body: `[{"op":"remove","path":"/status/resourceStatus"}]`},
	{method: "GET", path: "/a"},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"metadata":{"finalizers":["workwire.dev/hold"]}}`},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"metadata":{"finalizers":["workwire.dev/hold","plain"]}}`},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"metadata":{"finalizers":["workwire.dev/hold"]}}`},
	{method: "DELETE", path: "/a"},
	{method: "GET", path: "/a"},
	{method: "PATCH", path: "/a", kind: "application/merge-patch+json", body: `{"metadata":{"finalizers":null}}`},
	{method: "GET", path: "/a"},
	{method: "DELETE", path: "/a"},
	{method: "DELETE", path: "?labelSelector=a%3Db"},
	{method: "GET"},
}

// A hub serves works from Go types where it knows their definition, and by the definition where it does not. Its clients see no
// difference, and either reads what the other has written.
func TestWorksAreServedAsDefined(t *testing.T) {
	t.Parallel()
	p := up(t, "--role=hub", "--dir="+t.TempDir())
	c := worksClient{t: t, host: p.config().Host, kubectl: kubectl(t, p.kubeconfig)}
	var err error
	c.http, err = rest.HTTPClientFor(p.config())
	noError(t, err)
	for _, namespace := range []string{"typed", "defined"} {
		c.kubectl("", "create", "namespace", namespace)
	}
	c.kubectl("", "apply", "--server-side", "-f", definitionFile)
	c.kubectl("", "wait", "--for=condition=Established", definitionName, "--timeout=180s")
	c.awaitTyped(true)
	typed := c.all("typed")

	ended := c.watch("typed")
	c.kubectl("", "patch", definitionName, "--type=json", "--patch="+describe)
	c.awaitTyped(false)
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a watch from types goes on after another definition was applied")
	}
	if got := c.read("typed"); got != typed[len(typed)-1] {
		t.Errorf("what was written from types is read by the definition as\n%s\nnot as\n%s", got, typed[len(typed)-1])
	}
	defined := c.all("defined")
	for i, want := range defined {
		if typed[i] != want && (!steps[i].differs || typed[i][0] != want[0]) { // the class of the status code
			t.Errorf("%s %s %.300s: from types:\n%s\nby the definition:\n%s", steps[i].method, steps[i].path, steps[i].body, typed[i], want)
		}
	}

	c.kubectl("", "apply", "--server-side", "--force-conflicts", "-f", definitionFile)
	c.awaitTyped(true)
	if got := c.read("defined"); got != defined[len(defined)-1] {
		t.Errorf("what was written by the definition is read from types as\n%s\nnot as\n%s", got, defined[len(defined)-1])
	}

	// Works go with their definition, and do not come back with it.
	c.kubectl("", "delete", definitionName, "--timeout=60s")
	c.kubectl("", "apply", "--server-side", "-f", definitionFile)
	c.awaitTyped(true)
	if got := c.read("typed"); strings.Contains(got, "defaults") {
		t.Errorf("after the definition was deleted and made again, there is %s", got)
	}
}

type worksClient struct {
	t       *testing.T
	http    *http.Client
	host    string
	kubectl func(stdin string, args ...string) string
}

// awaitTyped waits until works are served from types, which have a status from the start, or not.
func (c worksClient) awaitTyped(want bool) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("works are served from types: %t", want), func() error {
		code, body := c.do("default", step{method: "POST", path: "?dryRun=All", body: named("probe")})
		if code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		if strings.Contains(body, `"resourceStatus":{}`) != want {
			return errors.New("not yet")
		}
		if code, body := c.do("default", step{method: "GET"}); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body) // it reads what is stored
		}
		return nil
	})
}

// all takes all steps and returns the answers, without what differs each time.
func (c worksClient) all(namespace string) []string {
	var answers []string
	for _, s := range steps {
		if strings.Contains(s.body, "CURRENT") {
			var work struct {
				Metadata struct {
					ResourceVersion string `json:"resourceVersion"`
				} `json:"metadata"`
			}
			_, body := c.do(namespace, step{method: "GET", path: "/a"})
			noError(c.t, json.NewDecoder(strings.NewReader(body)).Decode(&work))
			s.body = strings.Replace(s.body, "CURRENT", work.Metadata.ResourceVersion, 1)
		}
		code, body := c.do(namespace, s)
		answers = append(answers, fmt.Sprintf("%d %s", code, comparable(c.t, namespace, body)))
	}
	return answers
}

// read returns the works of a namespace, as the last step does.
func (c worksClient) read(namespace string) string {
	code, body := c.do(namespace, steps[len(steps)-1])
	return fmt.Sprintf("%d %s", code, comparable(c.t, namespace, body))
}

// watch begins a watch that lasts as long as it may, and returns what is closed at its end.
func (c worksClient) watch(namespace string) <-chan struct{} {
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.host+strings.Replace(worksPath, "NAMESPACE", namespace, 1)+"?watch=true&timeoutSeconds=3600", nil)
	noError(c.t, err)
	response, err := c.http.Do(request)
	noError(c.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
	}()
	return ended
}

func (c worksClient) do(namespace string, s step) (code int, body string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), s.method, c.host+strings.Replace(worksPath, "NAMESPACE", namespace, 1)+s.path, strings.NewReader(s.body))
	noError(c.t, err)
	request.Header.Set("Content-Type", "application/json")
	if s.kind != "" {
		request.Header.Set("Content-Type", s.kind)
	}
	if s.accept != "" {
		request.Header.Set("Accept", s.accept)
	}
	response, err := c.http.Do(request)
	noError(c.t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	noError(c.t, err)
	warnings, err := json.Marshal(response.Header["Warning"])
	noError(c.t, err)
	return response.StatusCode, string(data) + string(warnings)
}

// comparable returns the JSON values of a body without names of the namespace, times, versions and identities, and without
// what is empty: a type has such values where a definition has none.
func comparable(t *testing.T, namespace, body string) string {
	t.Helper()
	body = strings.ReplaceAll(body, namespace, "NAMESPACE")
	body = owned.ReplaceAllString(ages.ReplaceAllString(body, `"AGE"`), "")
	var out strings.Builder
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	for {
		var value any
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return out.String()
		} else if err != nil {
			return out.String() + err.Error()
		}
		text, err := json.Marshal(pruned(value))
		noError(t, err)
		out.Write(append(text, '\n'))
	}
}

var (
	ages = regexp.MustCompile(`"[0-9]+s"`)
	// What somebody owns as a whole: a type's struct is always there, and nobody's.
	owned = regexp.MustCompile(`"\.":\{\},?`)
)

func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, content := range value {
			if key != "fieldsV1" {
				content = pruned(content)
			}
			if managers, ok := content.([]any); ok && key == "managedFields" { // ordered by the second of their last write
				slices.SortFunc(managers, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			if value[key] = content; content == nil || content == "" || key == "force" ||
				slices.Contains([]string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "continue"}, key) {
				delete(value, key)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
		if len(value) == 0 {
			return nil
		}
	}
	return value
}
