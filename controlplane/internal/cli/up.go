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
	var role, datastoreFile string
	var access []string
	cmd := &cobra.Command{
		Use:   "up --role=hub|spoke --dir=DIR",
		Short: "Run a control plane until SIGTERM or Ctrl-C",
		Long: `up runs a control plane until SIGTERM or Ctrl-C.

When it is ready, it prints the path of the administrator's kubeconfig to
standard output. Progress is printed to standard error, logs are in DIR/logs.
All data is in DIR, or in the PostgreSQL database of --datastore-endpoint-file: the next up with the same DIR uses the same data,
credentials and, if it is free, port.

  --role=spoke  a cluster: all of Kubernetes, with nodes simulated by KWOK:
                pods become ready at once, pods of Jobs succeed at once
  --role=hub    an API without pods and nodes: namespaces, RBAC, CRDs, admission
                policies, leases, Secrets, with garbage collection`,
		Example: `  controlplane up --role=spoke --dir=/tmp/spoke
  kubectl --kubeconfig=/tmp/spoke/kubeconfig get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Files of this process and its children are accessible to their owner only, above all
			// etcd's socket, which requires no credentials.
			syscall.Umask(0o077)
			c.Role = plane.Role(role)
			if c.Role == plane.Spoke && !cmd.Flags().Changed("nodes") {
				c.Nodes = defaultNodes
			}
			for _, a := range access {
				user, file, _ := strings.Cut(a, "=")
				c.Access = append(c.Access, plane.Access{User: user, File: file})
			}
			var err error
			if c.Datastore, err = datastore(datastoreFile); err != nil {
				return err
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
	flags.StringVar(&role, "role", "", "role of the control plane: hub or spoke; required")
	flags.StringVar(&c.Dir, "dir", "", "directory of the control plane, created if it does not exist; required")
	flags.StringVar(&c.Name, "name", "", "name of the kubeconfig's context, 1 to 63 letters, digits and dashes (default: the role)")
	flags.StringVar(&c.BindAddress, "bind-address", "127.0.0.1", "IP address that the API server listens on; 0.0.0.0 means all addresses")
	flags.IntVar(&c.Port, "port", 0, "TCP port of the API server, 1 to 65535; 0 means the port of the last run if it is free, else any free port")
	flags.StringArrayVar(&c.Hosts, "hostname", nil, "DNS name or IP address in the certificate of the API server, for clients on other machines; may be repeated")
	flags.StringArrayVar(&access, "kubeconfig-for", nil, "USER=FILE: kubeconfig to write for a user at each start; RBAC authorizes the user. Its server is the first --hostname (default 127.0.0.1); may be repeated")
	flags.StringArrayVar(&c.Apply, "apply", nil, "file, directory or kustomization to apply at each start, before the control plane is ready; may be repeated")
	flags.IntVar(&c.Nodes, "nodes", 0, fmt.Sprintf("number of simulated nodes, 0 to 1000; spokes only (default %d)", defaultNodes))
	flags.BoolVar(&c.Fsync, "fsync", false, "wait for the disk at each write, so that data survives a crash of the machine; slower")
	flags.StringVar(&datastoreFile, "datastore-endpoint-file", "", "file with the URL of a PostgreSQL database for the data, postgres://USER:PASSWORD@HOST/DATABASE?sslmode=verify-full (default: etcd in DIR)")
	flags.DurationVar(&c.StartTimeout, "start-timeout", 2*time.Minute, "maximum time until ready")
	return cmd
}
