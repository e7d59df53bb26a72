package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/wire"
)

// What join prints.
const (
	joinManifests = "manifests"
	joinValues    = "values"
	joinTransport = "transport"
)

func joinCommand(o *cli.Options) *cobra.Command {
	var (
		list, broker string
		accept       bool
		format       cli.FormatFlag
	)
	cmd := leaf(&cobra.Command{
		Use:   "join CLUSTER --config=FILE [--accept]",
		Short: "Make what a new cluster needs: certificate, manifests, values, acceptance",
		Long: "Adds the cluster to the list of certificates and issues its certificate, accepts it on the hub with --accept, and\n" +
			"prints what is applied on the cluster. The hub's transport configuration (--transport) has the broker and the topics. The\n" +
			"output has the agent's private key, except for -o values. Running it again changes nothing.",
		Example: "  workctl join cluster2 --config=certificates.yaml --transport=hub1.yaml --accept | kubectl --context=cluster2 apply -f -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list == "" {
				return cli.Usagef("--config is required: the YAML file that lists the certificates")
			}
			hub, err := o.Broker()
			if err != nil {
				return err
			}
			c := join.Config{Cluster: wire.ClusterName(args[0]), Broker: cmp.Or(broker, hub.BrokerHost), HubName: hub.HubName, Topics: hub.Topics, List: list}
			if err := c.Validate(); err != nil {
				return err
			}
			manager, added, err := c.Certificate()
			if err != nil {
				return err
			}
			if added {
				_, _ = fmt.Fprintf(o.Err, "%s: added %s\n", list, c.Cluster)
			}
			if accept {
				if err := acceptCluster(cmd.Context(), o, c.Cluster); err != nil {
					return err
				}
			}
			return printJoin(o, c, manager, string(format.Format()))
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&list, "config", "", "YAML file that lists the certificates, see docs/certificates.md; required")
	fs.StringVar(&broker, "broker", "", "host:port or wss://host/path at which the agent reaches the broker, or several, comma-separated (default: that of --transport)")
	fs.BoolVar(&accept, "accept", false, "create the ManagedCluster on the hub, accepted, or accept the one that is there")
	format.Add(cmd, joinManifests, joinValues, joinTransport)
	return cmd
}

func acceptCluster(ctx context.Context, o *cli.Options, cluster wire.ClusterName) error {
	rest, err := o.RESTConfig()
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(rest)
	if err != nil {
		return err
	}
	if err := join.Accept(ctx, clients, cluster); err != nil {
		return cli.APIError("accept the cluster "+string(cluster), err)
	}
	_, _ = fmt.Fprintf(o.Err, "managedcluster %s: accepted\n", cluster)
	return nil
}

func printJoin(o *cli.Options, c join.Config, manager *certificates.Manager, what string) error {
	var (
		text []byte
		err  error
		next string
	)
	switch what {
	case joinValues:
		text, err = c.Values()
		next = "next: helm install workwire-agent deploy/helm/workwire -n " + join.Namespace + " -f VALUES, after the manifests (-o manifests)"
	case joinTransport:
		text, err = c.Transport(manager)
		next = "next: work-agent --cluster-name=" + string(c.Cluster) + " --transport-config=FILE --kubeconfig=FILE; the file has a private key"
	default:
		text, err = c.Manifests(manager)
		next = "next: kubectl apply it on the cluster; then the agent: workctl join with -o values has the values of the Helm chart"
	}
	if err != nil {
		return err
	}
	if _, err := o.Out.Write(text); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.Err, next)
	return nil
}
