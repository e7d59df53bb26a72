package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/certificates"
	"github.com/workwire/workwire/pkg/security/enrolment"
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
		list, broker, token string
		accept              bool
		format              cli.FormatFlag
	)
	cmd := leaf(&cobra.Command{
		Use:   "join CLUSTER --token=TOKEN | --config=FILE [--accept]",
		Short: "Make what a new cluster needs: its token, or certificate and acceptance",
		Long: "With --token, prints the Secret with which the cluster gets its certificate by itself, see docs/join.md.\n\n" +
			"With --config, adds the cluster to the list of certificates and issues its certificate, accepts it on the hub with --accept, and\n" +
			"prints what is applied on the cluster. The hub's transport configuration (--transport) has the broker and the topics. The\n" +
			"output has the agent's private key, except for -o values. Running it again changes nothing.",
		Example: "  workctl join cluster2 --token=$TOKEN | kubectl --context=cluster2 apply -f -\n" +
			"  workctl join cluster2 --config=certificates.yaml --transport=hub1.yaml --accept | kubectl --context=cluster2 apply -f -",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if token != "" {
				return joinByToken(cmd, o, wire.ClusterName(args[0]), token)
			}
			if list == "" {
				return cli.Usagef("--token or --config is required: a token of workctl token create, or the YAML file that lists the certificates")
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
	fs.StringVar(&token, "token", "", "token of workctl token create, or - to read it from the input; no other flag is needed then")
	fs.StringVar(&list, "config", "", "YAML file that lists the certificates, see docs/certificates.md; required without --token")
	fs.StringVar(&broker, "broker", "", "host:port or wss://host/path at which the agent reaches the broker, or several, comma-separated (default: that of --transport)")
	fs.BoolVar(&accept, "accept", false, "create the ManagedCluster on the hub, accepted, or accept the one that is there")
	format.Add(cmd, joinManifests, joinValues, joinTransport)
	return cmd
}

// joinByToken prints what has a cluster join with a token.
func joinByToken(cmd *cobra.Command, o *cli.Options, cluster wire.ClusterName, text string) error {
	var set []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "token" {
			set = append(set, "--"+f.Name)
		}
	})
	if len(set) > 0 {
		return usageError(cmd, cli.Usagef("%s has no effect with --token, which has all that is needed", strings.Join(set, ", ")))
	}
	if text == "-" {
		input, err := io.ReadAll(io.LimitReader(o.In, 64<<10))
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		text = string(input)
	}
	token, err := enrolment.ParseToken(text)
	if err != nil {
		return cli.Errorf("%w", err)
	}
	if token.Key() == nil {
		return cli.Errorf("the token has been used: another cluster has joined with it, and only its Secret has this rest of it").Do("workctl token create makes another one")
	}
	if _, err := token.Topics.ForAgent(cluster); err != nil {
		return cli.Usagef("%s", err)
	}
	manifests, err := join.TokenManifests(token.String())
	if err != nil {
		return err
	}
	if _, err := o.Out.Write(manifests); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(o.Err, "next: kubectl apply it on the cluster; then the agent: work-agent --cluster-name=%s --join-secret=%s/%s, or the values agent.clusterName=%s and agent.join.secret=work-agent-join of the Helm chart\n",
		cluster, join.Namespace, join.MembershipSecret, cluster)
	return nil
}

// clientsOf returns clients of the hub's API.
func clientsOf(o *cli.Options) (versioned.Interface, error) {
	rest, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	return versioned.NewForConfig(rest)
}

func acceptCluster(ctx context.Context, o *cli.Options, cluster wire.ClusterName) error {
	clients, err := clientsOf(o)
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
