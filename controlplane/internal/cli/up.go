package cli

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/controlplane/internal/plane"
)

func newUp() *cobra.Command {
	const defaultNodes = 3
	var c plane.Config
	var role string
	var access []string
	cmd := &cobra.Command{
		Use:   "up --role=hub|spoke --dir=DIR",
		Short: "Run a control plane until SIGTERM or Ctrl-C",
		Long: `up runs a control plane until SIGTERM or Ctrl-C.

When it is ready for use, it prints one line to stdout: the path of the
administrator's kubeconfig. Progress goes to stderr, logs to DIR/logs.
Everything is kept in DIR: the next up in the same DIR goes on with the same
data, credentials and (when free) port.

  --role=spoke  a cluster: all of Kubernetes, with nodes simulated by KWOK:
                pods become ready at once, pods of Jobs succeed at once
  --role=hub    an API without pods and nodes: namespaces, RBAC, CRDs, admission
                policies, leases, Secrets, with garbage collection`,
		Example: `  controlplane up --role=spoke --dir=/tmp/spoke
  kubectl --kubeconfig=/tmp/spoke/kubeconfig get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// What is made here, by children too, is the owner's alone: above
			// all etcd's socket, which asks nobody for credentials.
			syscall.Umask(0o077)
			c.Role = plane.Role(role)
			if c.Role == plane.Spoke && !cmd.Flags().Changed("nodes") {
				c.Nodes = defaultNodes
			}
			for _, a := range access {
				user, file, _ := strings.Cut(a, "=")
				c.Access = append(c.Access, plane.Access{User: user, File: file})
			}
			progress := func(line string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", role, line) }
			c.Progress = progress
			c.Ready = func(r plane.Running) {
				progress(fmt.Sprintf("ready at %s after %s", r.Server, r.Took.Round(100*time.Millisecond)))
				fmt.Fprintln(cmd.OutOrStdout(), r.Kubeconfig)
			}
			return plane.Run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "what the control plane is for: hub or spoke (required)")
	flags.StringVar(&c.Dir, "dir", "", "directory that holds the control plane; made when missing (required)")
	flags.StringVar(&c.Name, "name", "", "name of the kubeconfig's context, 1 to 63 letters, digits and dashes (default: the role)")
	flags.StringVar(&c.BindAddress, "bind-address", "127.0.0.1", "IP address that the API server listens on; 0.0.0.0: all of the machine")
	flags.IntVar(&c.Port, "port", 0, "TCP port, 1 to 65535; 0: the port of the last run if free, else any free one")
	flags.StringArrayVar(&c.Hosts, "hostname", nil, "DNS name or IP address by which clients elsewhere reach the API server: its certificate is valid for it; may be given several times")
	flags.StringArrayVar(&access, "kubeconfig-for", nil, "USER=FILE: a kubeconfig to write, at each start, for a user, who may do what RBAC says; its server is the first --hostname, or 127.0.0.1; may be given several times")
	flags.StringArrayVar(&c.Apply, "apply", nil, "file, folder or kustomization of manifests to apply, at each start, before the control plane is ready; may be given several times")
	flags.IntVar(&c.Nodes, "nodes", 0, fmt.Sprintf("number of simulated nodes, 0 to 1000; spokes only (default %d)", defaultNodes))
	flags.BoolVar(&c.Fsync, "fsync", false, "wait for the disk at each write, so that data survives a crash of the machine too; slower (default false)")
	flags.DurationVar(&c.StartTimeout, "start-timeout", 2*time.Minute, "longest time until ready, as a duration like 30s or 2m")
	return cmd
}
