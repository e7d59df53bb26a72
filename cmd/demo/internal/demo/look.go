package demo

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/workwire/workwire/test/kit/process"
)

// viewer returns a token of somebody who may look at everything of the hub, and change nothing, as docs/dashboard.md makes one.
func (s *stage) viewer(ctx context.Context) (token string, err error) {
	for _, args := range [][]string{
		{"serviceaccount", "viewer"},
		{"clusterrole", "viewer", "--verb=get,list,watch", "--resource=manifestworks.work.open-cluster-management.io," +
			"manifestworkreplicasets.work.open-cluster-management.io,managedclusters.cluster.open-cluster-management.io," +
			"manifestworkreplicasetrevisions.workwire.dev,events"},
		{"clusterrolebinding", "viewer", "--clusterrole=viewer", "--serviceaccount=default:viewer"},
		{"token", "viewer", "--duration=24h"},
	} {
		if token, err = s.atHub(ctx, "", append([]string{"create"}, args...)...); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(token), nil
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
  %[1]s
  workctl status
  workctl explain work hello-work-demo -n %[2]s
  kubectl -n %[2]s edit manifestwork example-manifestwork
at the cluster:
  kubectl --kubeconfig %[3]s get deployments,pods
and in a browser, at http://%[4]s, with a token that may only look:
%[5]s
`, s.exports(), clusterName, s.path("spoke/kubeconfig"), s.dashboard, token)
	if s.Walk {
		fmt.Fprint(s.Out, `The clusters and the set of the walk:
  workctl get clusters
  workctl describe set web -n ocm-ns
  kubectl -n ocm-ns edit manifestworkreplicaset web   # and then: workctl rollout approve web -n ocm-ns
  workctl rollout pause web -n ocm-ns
`)
	}
	fmt.Fprintf(s.Out, "A Go program as source %q, docs/sdk.md: its transport configuration is %s\n", programID, s.relative(s.path(programID+".yaml")))
	fmt.Fprintf(s.Out, "Logs: %s\n", s.relative(s.Dir)+"/*.log")
	return nil
}
