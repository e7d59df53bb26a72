package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/deploy/crds"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/runtime/version"
)

// api checks the API server: its version and clock, definitions, rights, and the cluster.
func (p *patient) api(ctx context.Context) {
	var date string
	config := rest.CopyConfig(p.REST)
	config.Timeout = p.Timeout
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && date == "" {
				date = response.Header.Get("Date")
			}
			return response, err
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.fault("api", err, "correct the kubeconfig")
		return
	}
	sent := p.Now()
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		fix := "check the address in the kubeconfig, and the way to it"
		if apierrors.IsUnauthorized(err) {
			fix = "log in again, or use another kubeconfig or --context"
		}
		p.fault("api", err, fix)
		return
	}
	p.good("api", "%s is Kubernetes %s; this is workctl %s", config.Host, server.GitVersion, version.Version)
	if at, err := http.ParseTime(date); err == nil {
		p.skew("clock of the API server", "the API server", at.Add(time.Second-1), sent, p.Now().Add(time.Second)) // it has seconds
	}
	if p.definitions(client) {
		p.rights(ctx, client)
		p.cluster(ctx, config)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// definitions checks that the API server serves the definitions that the role needs.
func (p *patient) definitions(client kubernetes.Interface) bool {
	wanted := crds.Hub()
	if p.Role == Agent {
		wanted = crds.Spoke()
	}
	var missing []string
	for _, definition := range wanted {
		if !served(client, definition) {
			missing = append(missing, definition.Name)
		}
	}
	if len(missing) > 0 {
		p.fault("definitions", fmt.Errorf("the API server does not serve %s", strings.Join(missing, ", ")),
			"apply deploy/crds of this version, or choose the right API server with --kubeconfig and --context")
		return false
	}
	p.good("definitions", "the API server serves all %d", len(wanted))
	return true
}

// served reports whether the API server has all versions of a definition. Everybody who is logged
// in may ask for that.
func served(client kubernetes.Interface, definition *apiextensionsv1.CustomResourceDefinition) bool {
	for i := range definition.Spec.Versions {
		resources, err := client.Discovery().ServerResourcesForGroupVersion(definition.Spec.Group + "/" + definition.Spec.Versions[i].Name)
		if err != nil || !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == definition.Spec.Names.Plural }) {
			return false
		}
	}
	return true
}

// right is something that a role must be allowed to do.
type right struct {
	group, resource string
	verbs           []string
}

const (
	workGroup    = "work.open-cluster-management.io"
	clusterGroup = "cluster.open-cluster-management.io"
)

// rightsOf are the rights without which a role cannot do its work.
var rightsOf = map[Role][]right{
	Operator: {
		{workGroup, "manifestworks", []string{"get", "list", "watch", "create", "patch", "delete"}},
		{clusterGroup, "managedclusters", []string{"get", "list", "watch", "patch"}},
	},
	Source: {
		{workGroup, "manifestworks", []string{"get", "list", "watch", "create", "patch", "delete", "execute-as"}},
		{workGroup, "manifestworks/status", []string{"patch"}},
		{workGroup, "manifestworkreplicasets", []string{"get", "list", "watch", "patch"}},
		{workGroup, "manifestworkreplicasets/status", []string{"patch"}},
		{clusterGroup, "managedclusters", []string{"get", "list", "watch", "create", "patch"}},
		{clusterGroup, "managedclusters/status", []string{"patch"}},
		{clusterGroup, "placements", []string{"get", "list", "watch"}},
		{clusterGroup, "placementdecisions", []string{"get", "list", "watch", "create", "update", "delete"}},
		{clusterGroup, "addonplacementscores", []string{"list", "watch"}},
		{"", "namespaces", []string{"get", "create"}},
		{"", "events", []string{"create", "patch"}},
	},
	Agent: {
		{workGroup, "appliedmanifestworks", []string{"get", "list", "watch", "create", "patch", "delete"}},
		{workGroup, "appliedmanifestworks/status", []string{"patch"}},
	},
}

// rights asks the API server for each right of the role.
func (p *patient) rights(ctx context.Context, client kubernetes.Interface) {
	var denied []string
	count := 0
	for _, r := range rightsOf[p.Rights] {
		for _, verb := range r.verbs {
			resource, subresource, _ := strings.Cut(r.resource, "/")
			attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: subresource}
			if p.Rights == Operator && resource == "manifestworks" {
				attributes.Namespace = string(p.Cluster)
			}
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				p.fault("rights", err, "")
				return
			}
			count++
			if !answer.Status.Allowed {
				denied = append(denied, verb+" "+r.resource)
			}
		}
	}
	if len(denied) == 0 {
		p.good("rights", "this user has all %d that the %s needs", count, p.Rights)
		return
	}
	fix := map[Role]string{
		Operator: "ask an administrator for what you want to do: the other commands work",
		Source:   "apply deploy/kustomize/hub/rbac of this version, or upgrade the chart",
		Agent:    "apply deploy/kustomize/agent/rbac of this version, or upgrade the chart",
	}[p.Rights]
	verdict := Fault
	if p.Rights == Operator {
		verdict = Warning
	}
	p.add("rights", verdict, fix, "this user may not %s", strings.Join(denied, ", "))
}

// cluster checks what the hub says about the cluster.
func (p *patient) cluster(ctx context.Context, config *rest.Config) {
	if p.Role == Agent || p.Cluster == "" {
		return
	}
	client, err := workclient.NewForConfig(config)
	if err != nil {
		p.fault("cluster", err, "")
		return
	}
	cluster, err := client.ClusterV1().ManagedClusters().Get(ctx, string(p.Cluster), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		p.fault("cluster", err, "let the cluster join with a token, or create its ManagedCluster: docs/join.md, docs/clusters.md; a hub that does not manage clusters needs none")
		return
	case err != nil:
		p.fault("cluster", err, "")
		return
	case !cluster.Spec.HubAcceptsClient:
		p.fault("cluster", fmt.Errorf("the ManagedCluster %s is not accepted, and gets no works", p.Cluster),
			"accept it: kubectl patch managedcluster "+string(p.Cluster)+` --type=merge -p '{"spec":{"hubAcceptsClient":true}}'`)
		return
	}
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case available == nil:
		p.add("cluster", Warning, "start the hub, and the agent", "the hub has not heard of its agent yet")
	case available.Status != metav1.ConditionTrue:
		p.add("cluster", Fault, "start the agent, and look at its log", "%s: %s", available.Reason, available.Message)
	default:
		p.good("cluster", "accepted, and its agent is connected")
	}
}
