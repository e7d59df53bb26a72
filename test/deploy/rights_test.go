package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/examples"
	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
	"github.com/workwire/workwire/test/kit/world"
)

const (
	sourceID = "hub1"
	served   = "cluster1" // the agent's cluster
	agentSA  = "klusterlet-work-sa"
	user     = "system:serviceaccount:" + agentNamespace + ":" + agentSA
)

// refusals are the requests that the API server has forbidden.
type refusals struct {
	mu   sync.Mutex
	seen []string // what and why
}

func (r *refusals) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// note adds the requests of config's clients that the API server forbids.
func (r *refusals) note(config *rest.Config) {
	kit.Intercept(config, func(next http.RoundTripper, request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusForbidden {
			verb, resource := kube.Describe(request)
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			response.Body = io.NopCloser(bytes.NewReader(body))
			r.mu.Lock()
			r.seen = append(r.seen, verb+" "+resource+": "+string(body))
			r.mu.Unlock()
		}
		return response, err
	})
}

// as is how a pod of the ServiceAccount talks to the API server: by its token.
func (c *cluster) as(namespace, name string) (*rest.Config, *refusals) {
	c.Helper()
	request := &authenticationv1.TokenRequest{}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(c.Context(), name, request, metav1.CreateOptions{})
	kit.NoError(c, err)
	config := rest.AnonymousClientConfig(c.REST())
	config.BearerToken = token.Status.Token
	config.QPS = -1
	refused := &refusals{}
	refused.note(config)
	return config, refused
}

// world has a broker, a source and this cluster.
func (c *cluster) world() *world.World {
	c.Helper()
	w := world.New(c, world.Options{Spokes: []*controlplane.Plane{c.Plane}, Source: sourceID, Clusters: []wire.ClusterName{served}})
	w.StartBroker(broker.Config{})
	return w
}

// agent runs the agent as its replicas do: by a Lease, in its namespace.
func (c *cluster) agent(w *world.World, as *rest.Config) {
	c.Helper()
	a := w.NewAgent(0, func(c *agent.Config) { c.Kube, c.SyncInterval, c.AboutInterval = as, time.Second, time.Minute })
	election := leader.NewOptions("work-agent-" + served)
	election.Namespace = agentNamespace
	kit.Run(c, "agent", func(ctx context.Context) error {
		return leader.Run(ctx, leader.Config{Options: election, REST: as, Logger: kit.Logger(c)}, a.Run)
	})
}

// create creates a work.
func (c *cluster) create(works workclientv1.ManifestWorkInterface, text string) *workv1.ManifestWork {
	c.Helper()
	work := &workv1.ManifestWork{}
	kit.NoError(c, yaml.UnmarshalStrict([]byte(text), work))
	work.Namespace = served
	created, err := works.Create(c.Context(), work, metav1.CreateOptions{})
	kit.NoError(c, err)
	return created
}

// applied waits until the work is applied.
func (c *cluster) applied(works workclientv1.ManifestWorkInterface, name string) {
	c.Helper()
	c.eventually(name+" is applied", func(ctx context.Context) error {
		work, err := works.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied) {
			err = fmt.Errorf("status %+v", work.Status)
		}
		return err
	})
}

// fails waits until a manifest of the work says why it is not applied.
func (c *cluster) fails(works workclientv1.ManifestWorkInterface, name, want string) {
	c.Helper()
	c.eventually(name+" says what is forbidden", func(ctx context.Context) error {
		work, err := works.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, manifest := range work.Status.ResourceStatus.Manifests {
			applied := meta.FindStatusCondition(manifest.Conditions, workv1.ManifestApplied)
			if applied != nil && applied.Status == metav1.ConditionFalse && strings.Contains(applied.Message, want) {
				return nil
			}
		}
		return fmt.Errorf("status %+v", work.Status)
	})
}

const machineWork = `
metadata: {name: machine}
spec:
  workload:
    manifests:
    - {apiVersion: cluster.x-k8s.io/v1beta1, kind: Machine, metadata: {name: m, namespace: default}}
`

// usualWork has what an agent of profile "ocm" may do without further ado.
const usualWork = `
metadata: {name: usual}
spec:
  workload:
    manifests:
    - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
    - {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}
    - {apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: shop}}
    - apiVersion: batch/v1
      kind: CronJob
      metadata: {name: j, namespace: shop}
      spec:
        schedule: "0 0 1 1 *"
        jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
    # More than the agent may itself: "escalate" and "bind".
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: ClusterRole
      metadata: {name: shop-nodes}
      rules: [{apiGroups: [""], resources: [nodes], verbs: ["*"]}]
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: ClusterRoleBinding
      metadata: {name: shop-nodes}
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
      subjects: [{kind: ServiceAccount, name: a, namespace: shop}]
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: RoleBinding
      metadata: {name: executor, namespace: shop}
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
      subjects: [{kind: ServiceAccount, name: a, namespace: shop}]
    - apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata: {name: shops.example.com}
      spec:
        group: example.com
        scope: Namespaced
        names: {plural: shops, kind: Shop}
        versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// executorWork makes the agent ask what somebody else may do, and act as him.
const executorWork = `
metadata: {name: executor}
spec:
  executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: shop, name: a}}}
  workload:
    manifests:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: Role
      metadata: {name: r, namespace: shop}
      rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
`

// TestAgentsRights runs an agent as the ServiceAccount of deploy/kustomize, with profile "ocm". What it may not do
// shows in the work's status, in the API server's words, until a work carries a ClusterRole that
// gives it the right. Nothing is restarted.
func TestAgentsRights(t *testing.T) {
	c := newCluster(t)
	c.run("kubectl apply --validate=strict -k deploy/kustomize/agent/crds")
	c.run("kubectl apply --validate=strict -k " + c.rights("ocm-rights"))
	machines := &apiextensionsv1.CustomResourceDefinition{}
	text, err := os.ReadFile("../examples/testdata/machines.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, machines)
	}
	kit.NoError(t, err)
	kit.NoError(t, install.CRDs(t.Context(), c.REST(), append(crds.Spoke(), machines)...))
	w := c.world()
	works := w.StartSDK(sourceID).ManifestWorks(served)
	as, refused := c.as(agentNamespace, agentSA)
	c.agent(w, as)

	for _, work := range []string{usualWork, executorWork} {
		c.applied(works, c.create(works, work).Name)
	}
	if seen := refused.list(); len(seen) > 0 {
		t.Errorf("the agent was refused\n%s", strings.Join(seen, "\n"))
	}

	c.create(works, machineWork)
	want := `machines.cluster.x-k8s.io is forbidden: User "` + user + `" cannot create resource "machines" in API group "cluster.x-k8s.io" in the namespace "default"`
	c.fails(works, "machine", want)
	for _, seen := range refused.list() {
		if !strings.Contains(seen, "machines.cluster.x-k8s.io") {
			t.Errorf("the agent was refused %s", seen)
		}
	}

	permission, err := examples.Files.ReadFile("permissions/aggregated-cluster-role.yaml")
	kit.NoError(t, err)
	c.applied(works, c.create(works, string(permission)).Name)
	c.applied(works, "machine")
	c.run("kubectl get machine -n default m")
	c.run("kubectl get lease -n " + agentNamespace + " work-agent-" + served)

	for _, name := range []string{"machine", "executor", "usual", "permission-set"} {
		kit.NoError(t, works.Delete(t.Context(), name, metav1.DeleteOptions{}))
		c.eventually(name+" is gone", func(ctx context.Context) error {
			if _, err := works.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
}

// application has what an agent of the default profile may do.
const application = `
metadata: {name: application}
spec:
  workload:
    manifests:
    - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
    - {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}
    - {apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: shop}}
    - {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}
    - apiVersion: apps/v1
      kind: Deployment
      metadata: {name: web, namespace: shop}
      spec:
        selector: {matchLabels: {app: web}}
        template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: Role
      metadata: {name: a, namespace: shop}
      rules: [{apiGroups: [""], resources: [configmaps, secrets], verbs: [get, list, watch, create, update, patch, delete]}]
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: RoleBinding
      metadata: {name: a, namespace: shop}
      roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}
      subjects: [{kind: ServiceAccount, name: a, namespace: shop}]
`

// TestDefaultRights runs an agent with the rights of deploy/kustomize as they are. It applies applications without being
// refused anything, and what an executor may; not more than either, and nothing in the executor's name.
func TestDefaultRights(t *testing.T) {
	c := newCluster(t)
	c.run("kubectl apply -k deploy/kustomize/agent/crds; kubectl apply --validate=strict -k deploy/kustomize/agent/rbac")
	w := c.world()
	works := w.StartSDK(sourceID).ManifestWorks(served)
	as, refused := c.as(agentNamespace, agentSA)
	c.agent(w, as)
	const executor = "spec:\n  executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: shop, name: a}}}\n"
	of := func(name, kind string) string {
		return "metadata: {name: " + name + "}\n" + executor + "  workload: {manifests: [{" + kind + ", metadata: {name: " + name + ", namespace: shop}}]}\n"
	}
	c.applied(works, c.create(works, application).Name)
	c.applied(works, c.create(works, of("allowed", "apiVersion: v1, kind: ConfigMap")).Name)
	c.create(works, of("denied", "apiVersion: v1, kind: ServiceAccount"))
	c.fails(works, "denied", "not allowed to apply the resource")
	c.run("kubectl create rolebinding a-roles --clusterrole=admin --serviceaccount=shop:a -n shop")
	c.create(works, of("role", "apiVersion: rbac.authorization.k8s.io/v1, kind: Role"))
	c.fails(works, "role", "give the agent the verb impersonate on serviceaccounts")
	for _, seen := range refused.list() {
		if !strings.Contains(seen, "cannot impersonate") {
			t.Errorf("the agent was refused %s", seen)
		}
	}
	// By the component, without a restart.
	c.run("kubectl apply -f deploy/kustomize/agent/impersonation/rights.yaml")
	c.applied(works, "role")
}

// TestRecordsOfAnotherAgent follows docs/install.md with an object that another agent has applied:
// this one applies it too, and the other's record goes.
func TestRecordsOfAnotherAgent(t *testing.T) {
	c := newCluster(t)
	c.run("kubectl apply -k deploy/kustomize/agent/crds; kubectl apply -k deploy/kustomize/agent/rbac")
	kit.NoError(t, install.CRDs(t.Context(), c.REST(), crds.Spoke()...))
	c.write("old.yaml", `
apiVersion: work.open-cluster-management.io/v1
kind: AppliedManifestWork
metadata: {name: old-web, finalizers: [cluster.open-cluster-management.io/applied-manifest-work-cleanup]}
spec: {agentID: old, hubHash: old, manifestWorkName: web}
`)
	c.run(`kubectl create --validate=strict -f old.yaml
uid=$(kubectl get appliedmanifestwork old-web -o jsonpath={.metadata.uid})
kubectl create -f - <<END
apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  namespace: default
  ownerReferences: [{apiVersion: work.open-cluster-management.io/v1, kind: AppliedManifestWork, name: old-web, uid: $uid}]
data: {a: b}
END`)
	w := c.world()
	works := w.StartSDK(sourceID).ManifestWorks(served)
	as, _ := c.as(agentNamespace, agentSA)
	c.agent(w, as)
	c.applied(works, c.create(works, `
metadata: {name: web}
spec: {workload: {manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}, data: {a: b}}]}}
`).Name)
	owners := func() string {
		return c.run("kubectl get configmap web -o jsonpath='{.metadata.uid} {.metadata.ownerReferences[*].name}'")
	}
	before := strings.Fields(owners())
	if len(before) != 3 {
		t.Fatalf("the object and its owners are %v, want two owners", before)
	}
	c.run(`kubectl patch appliedmanifestwork old-web --type=merge -p '{"metadata":{"finalizers":null}}'
kubectl delete appliedmanifestwork old-web`)
	c.eventually("the object belongs to the new record only", func(context.Context) error {
		after := strings.Fields(owners())
		if len(after) != 2 || after[0] != before[0] || after[1] == "old-web" {
			return fmt.Errorf("the object and its owners are %v", after)
		}
		return nil
	})
}

// rights is a folder with the agent's rights in deploy/kustomize, and a component of them or none.
func (c *cluster) rights(component string) string {
	c.Helper()
	text := "resources: [../deploy/kustomize/agent/rbac]\n"
	if component != "" {
		text += "components: [../deploy/kustomize/agent/" + component + "]\n"
	}
	c.write("rights/kustomization.yaml", text)
	return "rights"
}

// everything are the verbs that works need.
var everything = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// each is every one of verbs on every resource.
func each(verbs []string, resources ...string) (all []string) {
	for _, resource := range resources {
		for _, verb := range verbs {
			all = append(all, verb+" "+resource)
		}
	}
	return all
}

// may asks whether a ServiceAccount of the namespace has a right, such as "create", "roles.rbac.authorization.k8s.io".
func (c *cluster) may(user, namespace, verb, resource string) authorizationv1.SubjectAccessReviewStatus {
	c.Helper()
	name, group, _ := strings.Cut(resource, ".")
	name, subresource, _ := strings.Cut(name, "/")
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(c.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: name, Subresource: subresource},
		},
	}, metav1.CreateOptions{})
	kit.NoError(c, err)
	return review.Status
}

// TestWhatTheAgentMay says, for each row of the table in docs/install.md, what the agent's rights are and are not. Each
// profile has the rights of the one before.
func TestWhatTheAgentMay(t *testing.T) {
	c := newCluster(t)
	may := func(verb, resource string) authorizationv1.SubjectAccessReviewStatus {
		return c.may(user, agentNamespace, verb, resource)
	}
	const rbac = ".rbac.authorization.k8s.io"
	var profiles []string
	var granted []string
	for _, row := range []struct {
		profile, component string
		allowed            []string // besides those of the rows above
		denied             []string
		takenAway          string // after the row
	}{
		{
			profile: "own", component: "own-rights",
			allowed: []string{"create subjectaccessreviews.authorization.k8s.io", "list clusterroles" + rbac,
				"patch appliedmanifestworks/status.work.open-cluster-management.io", "create events", "patch events"},
			denied: []string{"get events", "get configmaps", "create namespaces", "get secrets", "create deployments.apps", "impersonate serviceaccounts"},
		},
		{
			profile: "workloads",
			allowed: each(everything, "configmaps", "namespaces", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services",
				"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "horizontalpodautoscalers.autoscaling",
				"cronjobs.batch", "jobs.batch", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy",
				"roles"+rbac, "rolebindings"+rbac),
			denied: []string{"impersonate serviceaccounts", "create serviceaccounts/token", "create pods/exec", "create pods/attach", "create pods/portforward",
				"get pods/log", "create pods/proxy", "create endpoints", "create clusterroles" + rbac, "create clusterrolebindings" + rbac,
				"create customresourcedefinitions.apiextensions.k8s.io", "patch deployments/status.apps"},
		},
		{
			profile: "workloads, impersonating", component: "impersonation",
			allowed:   []string{"impersonate serviceaccounts"},
			denied:    []string{"create serviceaccounts/token", "create pods/exec", "create clusterroles" + rbac},
			takenAway: "kubectl delete clusterrolebinding workwire-agent-impersonation",
		},
		{
			profile: "admin", component: "admin-rights",
			allowed: append(each(everything, "customresourcedefinitions.apiextensions.k8s.io", "clusterroles"+rbac, "clusterrolebindings"+rbac),
				"impersonate serviceaccounts", "create serviceaccounts/token", "create pods/exec"),
			denied: []string{"create priorityclasses.scheduling.k8s.io", "create mutatingwebhookconfigurations.admissionregistration.k8s.io",
				"bind clusterroles" + rbac, "bind roles" + rbac, "escalate clusterroles" + rbac, "escalate roles" + rbac},
		},
		{
			profile: "ocm", component: "ocm-rights",
			allowed: append(each(everything, "priorityclasses.scheduling.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io",
				"validatingwebhookconfigurations.admissionregistration.k8s.io", "servicemonitors.monitoring.coreos.com"),
				"bind clusterroles"+rbac, "bind roles"+rbac, "escalate clusterroles"+rbac, "escalate roles"+rbac),
		},
	} {
		if !strings.Contains(row.profile, ",") {
			profiles = append(profiles, row.profile)
		}
		c.run("kubectl apply --validate=strict -k " + c.rights(row.component))
		granted = append(granted, row.allowed...)
		c.eventually("the rights of "+row.profile+" are in force", func(context.Context) error {
			for _, right := range granted {
				if verb, resource, _ := strings.Cut(right, " "); !may(verb, resource).Allowed {
					return errors.New("not " + right)
				}
			}
			return nil
		})
		if row.profile != "ocm" { // nobody else may give more than he has
			row.denied = append(row.denied, "bind clusterroles"+rbac, "bind roles"+rbac, "escalate clusterroles"+rbac, "escalate roles"+rbac)
		}
		for _, right := range append(row.denied, "create nodes", "patch nodes", "create persistentvolumes", "create resourcequotas", "impersonate users",
			"impersonate groups", "create machines.cluster.x-k8s.io", "create storageclasses.storage.k8s.io",
			"create validatingadmissionpolicies.admissionregistration.k8s.io", "approve signers.certificates.k8s.io",
			"create certificatesigningrequests.certificates.k8s.io", "get manifestworks.work.open-cluster-management.io", "* *.*") {
			verb, resource, _ := strings.Cut(right, " ")
			if status := may(verb, resource); status.Allowed {
				t.Errorf("%s: %s is allowed: %s", row.profile, right, status.Reason)
			}
		}
		if row.profile == "workloads" {
			c.givesNoMoreThanItHas()
		}
		if row.takenAway != "" {
			c.run(row.takenAway)
			granted = slices.DeleteFunc(granted, func(right string) bool { return slices.Contains(row.allowed, right) })
		}
	}

	page, err := os.ReadFile("../../docs/install.md")
	kit.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "\n| profile |")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for _, line := range strings.Split(table, "\n")[2:] {
		documented = append(documented, strings.Fields(line)[1])
	}
	if !slices.Equal(documented, profiles) {
		t.Errorf("docs/install.md has the profiles %q, the test %q", documented, profiles)
	}
}

// givesNoMoreThanItHas: roles and bindings of the agent carry its own rights and no others.
func (c *cluster) givesNoMoreThanItHas() {
	c.Helper()
	as := " -n default --dry-run=server --as=" + user
	c.run("kubectl create role app --verb=get,list --resource=configmaps,secrets" + as)
	for _, command := range []string{
		"role app --verb=create --resource=pods/exec", "role app --verb=impersonate --resource=serviceaccounts", "role app --verb=get --resource=endpoints",
		"rolebinding app --clusterrole=admin --serviceaccount=default:app", "rolebinding app --clusterrole=cluster-admin --serviceaccount=default:app",
	} {
		if _, stderr, err := c.try("kubectl create " + command + as); err == nil || !strings.Contains(stderr, "is attempting to grant RBAC permissions not currently held") {
			c.Errorf("%s: %v %s", command, err, stderr)
		}
	}
}

// TestWhatTheHubMay: whoever has the hub's account can write every work, and has no other way into the cluster of the hub.
// Who may only read works reads what is in them, and changes nothing.
func TestWhatTheHubMay(t *testing.T) {
	c := newCluster(t)
	c.run("kubectl apply -k deploy/kustomize/hub/crds; kubectl apply --validate=strict -k deploy/kustomize/hub/rbac")
	const hub, work, rbac = "system:serviceaccount:" + hubNamespace + ":work-hub", "manifestworks.work.open-cluster-management.io", ".rbac.authorization.k8s.io"
	c.eventually("the rights are in force", func(context.Context) error {
		for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
			if !c.may(hub, hubNamespace, verb, work).Allowed {
				return errors.New("not " + verb)
			}
		}
		return nil
	})
	for _, right := range append(each(everything, "secrets", "configmaps", "serviceaccounts", "pods", "deployments.apps", "roles"+rbac, "clusterroles"+rbac,
		"clusterrolebindings"+rbac, "customresourcedefinitions.apiextensions.k8s.io", "validatingadmissionpolicies.admissionregistration.k8s.io"),
		"impersonate users", "impersonate serviceaccounts", "bind clusterroles"+rbac, "escalate clusterroles"+rbac, "create serviceaccounts/token",
		"delete namespaces", "delete managedclusters.cluster.open-cluster-management.io") {
		verb, resource, _ := strings.Cut(right, " ")
		if status := c.may(hub, hubNamespace, verb, resource); status.Allowed {
			t.Errorf("the hub: %s is allowed: %s", right, status.Reason)
		}
	}

	c.run("kubectl create namespace cluster1; kubectl create clusterrole reader --verb=get,list,watch --resource=" + work)
	c.run("kubectl create clusterrolebinding reader --clusterrole=reader --user=jane")
	c.run(`kubectl create -f - <<'END'
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: s, namespace: cluster1}
spec: {workload: {manifests: [{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default}, stringData: {password: tiger}}]}}
END`)
	if read := c.run("kubectl get manifestworks -A -o yaml --as=jane"); !strings.Contains(read, "tiger") {
		t.Errorf("a reader of works sees\n%s", read)
	}
	for _, command := range []string{"delete manifestwork s -n cluster1", "label manifestwork s -n cluster1 a=b", "get secrets -A"} {
		if _, stderr, err := c.try("kubectl --as=jane " + command); err == nil || !strings.Contains(stderr, "forbidden") {
			t.Errorf("a reader of works: %s: %v %s", command, err, stderr)
		}
	}
}

// fleet is a replica set for the clusters of a placement, whose works name an executor: the hub
// needs execute-as for that.
const fleet = `
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: global, namespace: default}
spec: {clusterSet: global}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: all, namespace: default}
spec: {}
---
apiVersion: work.open-cluster-management.io/v1alpha1
kind: ManifestWorkReplicaSet
metadata: {name: everywhere, namespace: default}
spec:
  placementRefs: [{name: all, rolloutStrategy: {rolloutType: All}}]
  manifestWorkTemplate:
    executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: default, name: deployer}}}
    workload:
      manifests:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: everywhere, namespace: default}}
`

// finished is a work that the hub deletes.
const finished = `
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: finished, namespace: cluster1}
spec:
  deleteOption: {ttlSecondsAfterFinished: 0}
  workload:
    manifests:
    - apiVersion: batch/v1
      kind: Job
      metadata: {name: once, namespace: default}
      spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
  manifestConfigs:
  - resourceIdentifier: {group: batch, resource: jobs, name: once, namespace: default}
    conditionRules: [{type: WellKnownConditions, condition: Complete}]
`

// TestHubsRights runs a hub, with all its controllers, as the ServiceAccount of deploy/kustomize,
// its admission policies in force.
func TestHubsRights(t *testing.T) {
	c := newCluster(t)
	c.run("kubectl apply -k deploy/kustomize/hub/crds; kubectl apply -k deploy/policies; kubectl apply --validate=strict -k deploy/kustomize/hub/rbac")
	c.run("kubectl create rolebinding deployer --clusterrole=admin --serviceaccount=default:deployer -n default")
	c.run("kubectl create namespace " + agentNamespace)
	kit.NoError(t, install.CRDs(t.Context(), c.REST(), append(crds.Hub(), crds.Spoke()...)...))
	w := c.world()
	w.Hub = c.Plane // from here on: the hub makes the namespace of the cluster
	as, refused := c.as(hubNamespace, "work-hub")
	election := hub.NewElection("work-hub-" + sourceID)
	election.Namespace = hubNamespace
	h := w.StartHub(func(c *hub.Config) { c.REST, c.Election, c.AutoRegister, c.AutoAccept = as, election, true, true })
	c.agent(w, c.REST())
	c.dashboard(h.Hub)

	client := versioned.NewForConfigOrDie(c.REST())
	c.eventually("the cluster is there", func(ctx context.Context) error {
		registered, err := client.ClusterV1().ManagedClusters().Get(ctx, served, metav1.GetOptions{})
		if err == nil && !meta.IsStatusConditionTrue(registered.Status.Conditions, "ManagedClusterConditionAvailable") {
			err = fmt.Errorf("conditions %+v", registered.Status.Conditions)
		}
		return err
	})
	c.write("fleet.yaml", fleet)
	c.write("finished.yaml", finished)
	c.run("kubectl apply --validate=strict -f fleet.yaml -f finished.yaml")
	c.eventually("the replica set is applied", func(ctx context.Context) error {
		set, err := client.WorkV1alpha1().ManifestWorkReplicaSets("default").Get(ctx, "everywhere", metav1.GetOptions{})
		if err == nil && set.Status.Summary.Applied != 1 {
			err = fmt.Errorf("status %+v", set.Status)
		}
		return err
	})
	c.eventually("the set is bound and has the cluster", func(ctx context.Context) error {
		binding, err := client.ClusterV1beta2().ManagedClusterSetBindings("default").Get(ctx, "global", metav1.GetOptions{})
		if err != nil {
			return err
		}
		set, err := client.ClusterV1beta2().ManagedClusterSets().Get(ctx, "global", metav1.GetOptions{})
		if err == nil && (!meta.IsStatusConditionTrue(binding.Status.Conditions, "Bound") || !meta.IsStatusConditionFalse(set.Status.Conditions, "ClusterSetEmpty")) {
			err = fmt.Errorf("binding %+v, set %+v", binding.Status, set.Status)
		}
		return err
	})
	c.eventually("the finished work is gone", func(ctx context.Context) error {
		if _, err := client.WorkV1().ManifestWorks(served).Get(ctx, "finished", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	// A change of the spec is written to the work, and taking all away deletes it.
	c.run("kubectl patch manifestworkreplicaset everywhere --type=json -p " +
		`'[{"op":"add","path":"/spec/manifestWorkTemplate/workload/manifests/0/data","value":{"a":"b"}}]'`)
	c.eventually("the change arrives", func(ctx context.Context) error {
		changed, err := c.client.CoreV1().ConfigMaps("default").Get(ctx, "everywhere", metav1.GetOptions{})
		if err == nil && changed.Data["a"] != "b" {
			err = fmt.Errorf("data %v", changed.Data)
		}
		return err
	})
	c.run("kubectl delete -f fleet.yaml --timeout=180s")
	c.eventually("its work is gone", func(ctx context.Context) error {
		list, err := client.WorkV1().ManifestWorks(served).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d works", len(list.Items))
		}
		return err
	})
	c.eventually("events are written", func(ctx context.Context) error {
		list, err := c.client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ManagedCluster"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("none")
		}
		return err
	})
	if seen := refused.list(); len(seen) > 0 {
		t.Errorf("the hub was refused\n%s", strings.Join(seen, "\n"))
	}
}

// dashboard looks at the hub's pages as somebody with the role for that.
func (c *cluster) dashboard(h *hub.Hub) {
	c.Helper()
	c.run("kubectl apply --validate=strict -f deploy/kustomize/hub/dashboard/rights.yaml; kubectl create serviceaccount viewer -n default")
	c.run("kubectl create clusterrolebinding viewer --clusterrole=workwire-viewer --serviceaccount=default:viewer")
	pages, err := h.Dashboard(hub.DashboardOptions{Address: "127.0.0.1:0"})
	kit.NoError(c, err)
	kit.Run(c, "dashboard", pages.Run)
	kit.Receive(c, "the dashboard listens", pages.Listening())
	viewer, _ := c.as("default", "viewer")
	c.eventually("the dashboard shows the cluster", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pages.Addr()+"/", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+viewer.BearerToken)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != http.StatusOK || !strings.Contains(string(body), "/clusters/"+served)) {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return err
	})
}
