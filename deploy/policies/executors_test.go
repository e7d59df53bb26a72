package policies_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

const (
	forbidden           = "user %s cannot manipulate the Manifestwork with executor %s in namespace %s"
	forbiddenEverywhere = "user %s cannot manipulate the Manifestwork with executor %s in every namespace"
)

// user is somebody who may write works and replica sets in a namespace.
type user struct {
	*testing.T
	resource schema.GroupVersionResource
	name, ns string
	client   dynamic.ResourceInterface
}

func newUser(t *testing.T, resource schema.GroupVersionResource, ns, name string) *user {
	t.Helper()
	kit.NoError(t, grant(t.Context(), plane.REST(), ns, name, writer))
	return &user{t, resource, name, ns, dynamic.NewForConfigOrDie(as(plane.REST(), name)).Resource(resource).Namespace(ns)}
}

// refused fails the test unless err says that the user may not name the executor.
func (u *user) refused(err error, executor string) {
	u.Helper()
	if err == nil || !apierrors.IsForbidden(err) {
		u.Errorf("executor %s of %s: got %v, want Forbidden", executor, u.name, err)
		return
	}
	message := fmt.Sprintf(forbidden, u.name, executor, u.ns)
	if u.resource == sets {
		message = fmt.Sprintf(forbiddenEverywhere, u.name, executor)
	}
	denied(u.T, err, "workwire-executors", message)
}

// patch merges into the spec of a work, or of the template of a replica set.
func (u *user) patch(resource schema.GroupVersionResource, name, spec string) error {
	patch := `{"spec":` + spec + `}`
	if resource == sets {
		patch = `{"spec":{"manifestWorkTemplate":` + spec + `}}`
	}
	_, err := u.client.Patch(u.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

const (
	withExecutor1 = `{"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"default","name":"executor1"}}}}`
	withExecutor2 = `{"executor":{"subject":{"type":"ServiceAccount","serviceAccount":{"namespace":"default","name":"executor2"}}}}`
	noExecutor    = `{"executor":null}`
	otherManifest = `{"workload":{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"default"}}]}}`
)

// TestExecuteAs: jane may name executor1, bob none. The right in the namespace of a replica set is not
// a right in the namespaces of its clusters.
func TestExecuteAs(t *testing.T) {
	for _, resource := range []schema.GroupVersionResource{works, sets} {
		t.Run(resource.Resource, func(t *testing.T) {
			ns, elsewhere := plane.Namespace(t, "execute-as"), plane.Namespace(t, "elsewhere")
			bob := newUser(t, resource, ns, "bob-"+ns)
			jane := newUser(t, resource, ns, "jane-"+ns)
			janeElsewhere := newUser(t, resource, elsewhere, jane.name)
			create := func(u *user, name string, spec map[string]any) error {
				_, err := u.client.Create(t.Context(), object(resource, name, spec), metav1.CreateOptions{})
				return err
			}
			jane.refused(create(jane, "work", specWith("executor1", configMap("a"))), "default/executor1")
			kit.NoError(t, grant(t.Context(), plane.REST(), ns, jane.name, executing("executor1")))
			janeElsewhere.refused(create(janeElsewhere, "work", specWith("executor1", configMap("a"))), "default/executor1")
			if resource == sets {
				jane.refused(create(jane, "work", specWith("executor1", configMap("a"))), "default/executor1")
				kit.NoError(t, grant(t.Context(), plane.REST(), "", jane.name, executing("executor1")))
			}

			// Who may name it, and where.
			kit.NoError(t, create(jane, "work", specWith("executor1", configMap("a"))))
			jane.refused(create(jane, "other", specWith("executor2", configMap("a"))), "default/executor2")
			bob.refused(create(bob, "other", specWith("executor1", configMap("a"))), "default/executor1")

			// What is not about the executor is not asked about.
			kit.NoError(t, create(bob, "none", specOf(configMap("a"))))
			kit.NoError(t, bob.patch(resource, "work", otherManifest))
			kit.NoError(t, bob.patch(resource, "work", withExecutor1)) // it is there already
			_, err := bob.client.Patch(t.Context(), "work", types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"team":"shop"}}}`), metav1.PatchOptions{})
			kit.NoError(t, err)

			// A change of it is, whoever it was before.
			bob.refused(bob.patch(resource, "none", withExecutor1), "default/executor1")
			bob.refused(bob.patch(resource, "work", withExecutor2), "default/executor2")
			jane.refused(jane.patch(resource, "work", withExecutor2), "default/executor2")
			kit.NoError(t, jane.patch(resource, "none", withExecutor1))

			// Without the policy of NilExecutor, anybody may do without one; bob cannot have it
			// back.
			kit.NoError(t, bob.patch(resource, "work", noExecutor))
			bob.refused(bob.patch(resource, "work", withExecutor1), "default/executor1")
			kit.NoError(t, jane.patch(resource, "work", withExecutor1))
			kit.NoError(t, bob.client.Delete(t.Context(), "work", metav1.DeleteOptions{}))
		})
	}
}

// TestExecuteAsByGroup: rights come by groups as well, to ServiceAccounts of the hub too.
func TestExecuteAsByGroup(t *testing.T) {
	ns := plane.Namespace(t, "group")
	account := "system:serviceaccount:" + ns + ":deployer"
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + ns}
	kit.NoError(t, grant(t.Context(), plane.REST(), ns, account, writer))
	config := as(plane.REST(), account, groups...)
	client := dynamic.NewForConfigOrDie(config).Resource(works).Namespace(ns)
	work := object(works, "work", specWith("executor1", configMap("a")))
	_, err := client.Create(t.Context(), work, metav1.CreateOptions{})
	denied(t, err, "workwire-executors", fmt.Sprintf(forbidden, account, "default/executor1", ns))

	roles := kubernetes.NewForConfigOrDie(plane.REST()).RbacV1()
	_, err = roles.Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "executor1"}, Rules: executing("executor1"),
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	_, err = roles.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "executor1"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "executor1"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: groups[1]}},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	kit.NoError(t, may(t.Context(), config, authorizationv1.ResourceAttributes{
		Group: workv1.GroupName, Resource: "manifestworks", Namespace: ns, Verb: "execute-as",
		Name: "system:serviceaccount:default:executor1",
	}))
	_, err = client.Create(t.Context(), work, metav1.CreateOptions{})
	kit.NoError(t, err)
}

// TestMalformedExecutor: our definitions refuse them by their schema; TestForeignDefinitions has
// the policy do it.
func TestMalformedExecutor(t *testing.T) {
	ns := plane.Namespace(t, "malformed")
	for _, resource := range []schema.GroupVersionResource{works, sets} {
		client := dynamic.NewForConfigOrDie(plane.REST()).Resource(resource).Namespace(ns)
		for _, example := range malformed(t) {
			_, err := client.Create(t.Context(), object(resource, example.Name, example.Spec), metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "executor.subject") {
				t.Errorf("%s %s: got %v, want it to be invalid", resource.Resource, example.Name, err)
			}
		}
	}
}

func malformed(t *testing.T) []example {
	t.Helper()
	type malformed struct {
		Name     string         `json:"name"`
		Want     string         `json:"want"`
		Executor map[string]any `json:"executor"`
	}
	var examples []example
	for _, one := range read[[]malformed](t, "testdata/refused-executors.yaml") {
		spec := specOf(configMap("a"))
		spec["executor"] = one.Executor
		examples = append(examples, example{Name: one.Name, Want: one.Want, Spec: spec})
	}
	return examples
}

// TestKubectl is what users see, with the examples of docs/policies.md as they stand there.
func TestKubectl(t *testing.T) {
	docs := documented(t)
	admin := plane.Kubeconfig
	jane := login(t, plane, "jane")
	does := func(kubeconfig, input string, args ...string) string {
		t.Helper()
		output, err := kubectl(t, kubeconfig, input, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %s", strings.Join(args, " "), output)
		}
		return output
	}
	fails := func(input, want string, args ...string) {
		t.Helper()
		if output, err := kubectl(t, jane, input, args...); err == nil || output != want {
			t.Errorf("kubectl %s printed\n%s\nwant\n%s", strings.Join(args, " "), output, want)
		}
	}
	does(admin, "", "create", "namespace", "cluster1")
	kit.NoError(t, grant(t.Context(), plane.REST(), "cluster1", "jane", writer))

	fails(docs.work, `Error from server (Forbidden): error when creating "STDIN": `+
		`manifestworks.work.open-cluster-management.io "example-manifestwork" is forbidden: `+docs.denied, "create", "-f", "-")
	does(admin, docs.role, "apply", "-f", "-")
	kit.NoError(t, may(t.Context(), as(plane.REST(), "jane"), authorizationv1.ResourceAttributes{
		Group: workv1.GroupName, Resource: "manifestworks", Namespace: "cluster1", Verb: "execute-as",
		Name: "system:serviceaccount:default:executor1",
	}))
	does(jane, docs.work, "create", "-f", "-")
	if got := does(jane, "", "auth", "can-i", "execute-as",
		"manifestworks.work.open-cluster-management.io/system:serviceaccount:default:executor1", "-n", "cluster1"); !strings.HasSuffix(got, "yes") {
		t.Errorf("kubectl auth can-i: %s", got)
	}

	twice := strings.Replace(docs.work, "    manifests:\n", `    manifests:
      - {apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: test}}
`, 1)
	fails(twice, `The manifestworks "example-manifestwork" is invalid: : ValidatingAdmissionPolicy 'workwire-manifests' `+
		`with binding 'workwire-manifests' denied request: `+
		`duplicate manifest for resource default/test with resource type v1.ConfigMap`, "replace", "-f", "-")
	generated := strings.Replace(docs.work, "          name: test", "          generateName: test-", 1)
	fails(generated, `The manifestworks "example-manifestwork" is invalid: : ValidatingAdmissionPolicy 'workwire-manifests' `+
		`with binding 'workwire-manifests' denied request: generateName must not be set in manifest`, "replace", "-f", "-")
	other := strings.Replace(docs.work, "name: executor1", "name: executor2", 1)
	fails(other, `Error from server (Forbidden): error when replacing "STDIN": `+
		`manifestworks.work.open-cluster-management.io "example-manifestwork" is forbidden: `+
		`ValidatingAdmissionPolicy 'workwire-executors' with binding 'workwire-executors' denied request: `+
		`user jane cannot manipulate the Manifestwork with executor default/executor2 in namespace cluster1`, "replace", "-f", "-")
	empty := regexp.MustCompile(`(?s)manifests:\n.*`).ReplaceAllString(docs.work, "manifests: []\n")
	if output, err := kubectl(t, jane, empty, "replace", "-f", "-"); err == nil || !strings.Contains(output, "manifests should not be empty") {
		t.Errorf("an empty work: %s", output)
	}
}

// documented are the parts of docs/policies.md that are tested.
func documented(t *testing.T) (docs struct{ work, denied, role string }) {
	t.Helper()
	text, err := os.ReadFile("../../docs/policies.md")
	kit.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```(?:yaml|text)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		switch {
		case strings.Contains(block[1], "kind: ManifestWork\n"):
			docs.work = block[1]
		case strings.Contains(block[1], "kind: Role\n"):
			docs.role = block[1]
		case strings.Contains(block[1], "denied request:\nuser"):
			docs.denied = strings.Join(strings.Fields(block[1]), " ")
		}
	}
	if docs.work == "" || docs.denied == "" || docs.role == "" {
		t.Fatalf("docs/policies.md does not have all of it: %+v", docs)
	}
	if example, err := os.ReadFile("../../examples/executor/execute-as-role.yaml"); err != nil ||
		!strings.Contains(docs.role, afterComments(string(example))) {
		t.Errorf("the Role is not that of examples/executor (%v)", err)
	}
	return docs
}

func afterComments(text string) string {
	return regexp.MustCompile(`(?m)\A(#.*\n)*`).ReplaceAllString(text, "")
}
