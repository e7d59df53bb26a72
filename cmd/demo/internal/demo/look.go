package demo

import (
	"context"
	"fmt"
	"regexp"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/test/kit/process"
)

// viewerName is the name of a ServiceAccount that may look at works, sets and clusters, and of its rights.
const viewerName = "viewer"

// viewer returns a token of somebody who may look at everything of the hub, and change nothing.
func (s *stage) viewer(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(s.hub)
	if err != nil {
		return "", err
	}
	name, options := metav1.ObjectMeta{Name: viewerName}, metav1.CreateOptions{}
	read := []string{"get", "list", "watch"}
	if _, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: name}, options); err != nil {
		return "", fmt.Errorf("create a ServiceAccount for the dashboard: %w", err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks", "manifestworkreplicasets"}, Verbs: read},
		{APIGroups: []string{clusterv1.GroupName}, Resources: []string{"managedclusters"}, Verbs: read},
		{APIGroups: []string{workwirev1alpha1.GroupName}, Resources: []string{"manifestworkreplicasetrevisions"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: read},
	}}
	if _, err = client.RbacV1().ClusterRoles().Create(ctx, role, options); err != nil {
		return "", fmt.Errorf("create a ClusterRole for the dashboard: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewerName},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: viewerName}}}
	if _, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, options); err != nil {
		return "", fmt.Errorf("create a ClusterRoleBinding for the dashboard: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * 60 * 60))}}
	answer, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, viewerName, request, options)
	if err != nil {
		return "", fmt.Errorf("create a token for the dashboard: %w", err)
	}
	return answer.Status.Token, nil
}

var served = regexp.MustCompile(`msg="serving the dashboard" address=(\S+)`)

// dashboardAddress waits until a hub serves its dashboard, and returns where.
func dashboardAddress(ctx context.Context, hub *process.Process) (string, error) {
	return hub.Line(ctx, func(line string) string {
		if m := served.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		return ""
	})
}

// goOn prints what the user can do next.
func (s *stage) goOn(ctx context.Context) error {
	token, err := s.viewer(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, `
It goes on until Ctrl-C. In another terminal, at the hub:
  export KUBECONFIG=%[1]s PATH=%[2]s:$PATH
  workctl status
  workctl explain work hello-work-demo -n %[3]s
  kubectl -n %[3]s edit manifestwork example-manifestwork
at the cluster:
  kubectl --kubeconfig %[4]s get deployments,pods
and in a browser, at http://%[5]s, with a token that may only look:
%[6]s
`, s.path("hub/kubeconfig"), s.Bin, clusterName, s.path("spoke/kubeconfig"), s.dashboard, token)
	if s.Walk {
		fmt.Fprintf(s.Out, `The clusters and the set of the walk:
  workctl get clusters
  workctl describe set web -n %[1]s
  kubectl -n %[1]s edit manifestworkreplicaset web   # and then: workctl rollout approve web -n %[1]s
  workctl rollout pause web -n %[1]s
`, setsNamespace)
	}
	fmt.Fprintf(s.Out, "A Go program as source %q, docs/sdk.md: its transport configuration is %s\n", programID, s.relative(s.path(programID+".yaml")))
	fmt.Fprintf(s.Out, "Logs: %s\n", s.relative(s.Dir)+"/*.log")
	return nil
}
