package e2e

import (
	"fmt"
	"strings"
)

// tutorial is what a user does first: apply, look, edit, delete.
func tutorial(s *stack) {
	const work = "example-manifestwork"
	at := func(args ...string) []string {
		return append([]string{"-n", "cluster1", "get", "manifestwork"}, args...)
	}
	hubShows := func(want []string, args ...string) {
		s.Helper()
		s.shows(want, func() (string, error) { return s.tryHub("", args...) })
	}
	spokeShows := func(want []string, args ...string) {
		s.Helper()
		s.shows(want, func() (string, error) { return s.trySpoke("spoke", args...) })
	}

	// What docker-compose up applied, with its feedback.
	hubShows([]string{"AvailableReplicas", "ReadyReplicas", "isAvailable", "reason: AppliedManifestWorkComplete"}, at(example, "-o", "yaml")...)

	s.hub("apply", "-f", "examples/example-manifestwork.yaml")
	hubShows([]string{"APPLIED", "AVAILABLE", "COMPLETE"}, at(work)...)
	hubShows([]string{
		"message: All resources are available", "resourceStatus:", "name: nginx-deployment", "kind: ServiceAccount",
		"cluster.open-cluster-management.io/manifest-work-cleanup",
	}, at(work, "-o", "yaml")...)
	spokeShows([]string{"serviceaccount/my-sa", "nginx-deployment   3/3"}, "get", "serviceaccount/my-sa", "deployment/nginx-deployment")
	spokeShows([]string{"-" + work}, "get", "appliedmanifestworks")

	edit := "KUBE_EDITOR=sed -i 's/nginx:1.14.2/nginx:1.16.1/; s/replicas: 3/replicas: 5/'"
	s.must(s.run("", "env", edit, "bin/kubectl", "--kubeconfig="+s.path("hub.kubeconfig"), "-n", "cluster1", "edit", "manifestwork", work))
	spokeShows([]string{"nginx:1.16.1", "5/5"}, "get", "deployment/nginx-deployment", "-o", "wide")

	s.hub("-n", "cluster1", "delete", "manifestwork", work) // waits for the finalizer
	spokeShows([]string{"deployments.apps \"nginx-deployment\" not found", "serviceaccounts \"my-sa\" not found"},
		"get", "serviceaccount/my-sa", "deployment/nginx-deployment")
	s.converged()
}

// shows waits until the output, or the error, holds all of want.
func (s *stack) shows(want []string, command func() (string, error)) {
	s.Helper()
	s.eventually(fmt.Sprintf("it shows %q", want), soon, func() error {
		out, err := command()
		if err != nil {
			out += err.Error()
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("it lacks %q:\n%s", w, out)
			}
		}
		return nil
	})
}
