package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/wire"
)

func tokenCommand(o *cli.Options) *cobra.Command {
	token := group("token", "Make, list and delete the tokens that clusters join with")
	var namespace string
	hubNamespaceFlag(token.PersistentFlags(), &namespace)
	secrets := func(ctx context.Context) (corev1client.SecretInterface, error) {
		reader, err := hub(o)
		if err != nil {
			return nil, err
		}
		if namespace == "" {
			namespace = reader.HubNamespace(ctx)
		}
		return reader.Kube.CoreV1().Secrets(namespace), nil
	}
	token.AddCommand(createTokenCommand(o, secrets), listTokensCommand(o, secrets), deleteTokenCommand(o, secrets))
	return token
}

// newToken is what workctl token create is told.
type newToken struct {
	grant                               enrolment.Grant
	expires                             time.Duration
	broker, username, passwordFile, set string
	labels                              map[string]string
	everySource                         bool
}

func createTokenCommand(o *cli.Options, secrets func(context.Context) (corev1client.SecretInterface, error)) *cobra.Command {
	var n newToken
	cmd := leaf(&cobra.Command{
		Use:   "create [CLUSTER...] --password-file=FILE [--uses=N] [--expires=DURATION]",
		Short: "Make a token, and print it",
		Long: "Makes a token with which clusters join the hub, see docs/join.md, and prints it: it is a secret until it has expired or is used\n" +
			"up. With names, only clusters of these names may join. The hub keeps what recognizes the token, and not the token. The hub's transport\n" +
			"configuration (--transport) has the broker, its authority and the topics.",
		Example: "  workctl token create berlin --transport=hub1.yaml --password-file=joiner.password\n" +
			"  workctl token create --prefix=shop- --uses=200 --expires=72h --approve=false --transport=hub1.yaml --password-file=joiner.password",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n.passwordFile == "" {
				return usageError(cmd, cli.Usagef("--password-file is required: the file with the password of the user %s at the broker, who may only ask to join", n.username))
			}
			n.grant.Clusters = named[wire.ClusterName](args)
			n.grant.Uses = cmp.Or(n.grant.Uses, max(1, len(args)))
			client, err := secrets(cmd.Context())
			if err != nil {
				return err
			}
			return n.create(cmd, o, client)
		},
	})
	fs := cmd.Flags()
	fs.DurationVar(&n.expires, "expires", time.Hour, "how long clusters may join with it")
	fs.IntVar(&n.grant.Uses, "uses", 0, "how many clusters may join with it (default the number of names, or 1)")
	fs.StringVar(&n.grant.Prefix, "prefix", "", "how the names of the clusters begin (default any, or those that are named)")
	fs.BoolVar(&n.grant.Approve, "approve", true, "the hub approves the clusters; false: somebody does for each, with kubectl certificate approve")
	fs.BoolVar(&n.grant.Replace, "replace", false, "a cluster of a given name may be a new one, and the one that had the name is cut off as soon as it asks; not with --approve=false")
	fs.StringToStringVar(&n.labels, "labels", nil, "labels of the ManagedClusters, as key=value, comma-separated")
	fs.StringVar(&n.set, "cluster-set", "", "ManagedClusterSet of the clusters")
	fs.BoolVar(&n.everySource, "every-source", false, "the agents serve every source of the broker, such as programs with the SDK; false: this hub alone")
	fs.StringVar(&n.broker, "broker", "", "host:port or wss://host/path at which the clusters reach the broker, or several, comma-separated (default that of --transport)")
	fs.StringVar(&n.username, "username", "joiner", "user of the broker with the role joiner")
	fs.StringVar(&n.passwordFile, "password-file", "", "file with the password of that user; required")
	return cmd
}

// create makes the token, stores what the hub keeps of it, and prints it.
func (n *newToken) create(cmd *cobra.Command, o *cli.Options, client corev1client.SecretInterface) error {
	password, err := os.ReadFile(n.passwordFile)
	if err != nil {
		return fmt.Errorf("--password-file: %w", err)
	}
	hub, err := o.Broker()
	if err != nil {
		return err
	}
	token, made, err := join.TokenOf(hub, n.broker, n.username, strings.TrimRight(string(password), "\r\n"))
	if err == nil && n.everySource {
		token.Topics, err = token.Topics.EverySource()
	}
	if err != nil {
		return fmt.Errorf("--transport: %w", err)
	}
	now, grant := time.Now(), n.grant
	grant.PublicKey, grant.Expires, grant.Labels = made.PublicKey, now.Add(n.expires).Truncate(time.Second), n.labels
	if n.set != "" {
		grant.Labels = map[string]string{clusterv1.ClusterSetLabelKey: n.set}
		maps.Copy(grant.Labels, n.labels)
	}
	if err := grant.Validate(now); err != nil {
		return usageError(cmd, cli.Usagef("%s", err))
	}
	if err := join.CreateToken(cmd.Context(), client, grant, now); err != nil {
		return cli.APIError("store the token on the hub", err)
	}
	_, _ = fmt.Fprintf(o.Err, "token %s for %s, until %s; on the cluster: workctl join NAME --token=TOKEN | kubectl apply -f -\n", grant.ID(), whom(grant), grant.Expires.Format(time.RFC3339))
	_, err = fmt.Fprintln(o.Out, token)
	return err
}

// whom says which clusters may join with a grant.
func whom(g enrolment.Grant) string {
	switch {
	case len(g.Clusters) > 0:
		return strings.Join(named[string](g.Clusters), ", ")
	case g.Prefix != "":
		return fmt.Sprintf("%d of %s*", g.Uses, g.Prefix)
	}
	return fmt.Sprintf("any %d", g.Uses)
}

func listTokensCommand(o *cli.Options, secrets func(context.Context) (corev1client.SecretInterface, error)) *cobra.Command {
	return leaf(&cobra.Command{
		Use: "list", Short: "List the tokens that the hub knows", Args: cobra.NoArgs, Example: "  workctl token list",
		Long: "Lists the tokens that the hub knows, and who has joined with them. It cannot show a token again: the hub does not have it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := secrets(cmd.Context())
			if err != nil {
				return err
			}
			grants, err := join.Tokens(cmd.Context(), client)
			if err != nil {
				return cli.APIError("list the tokens", err)
			}
			reader, err := hub(o)
			if err != nil {
				return err
			}
			joined, err := join.JoinedWith(cmd.Context(), reader.Clients)
			if err != nil {
				return cli.APIError("list the clusters", err)
			}
			table := cli.Rows{Header: []string{"ID", "FOR", "EXPIRES", "APPROVED", "USED"}}
			for _, g := range grants {
				used := joined[g.ID()]
				slices.Sort(used)
				expires := g.Expires.UTC().Format(time.RFC3339)
				if !g.Expires.After(time.Now()) {
					expires += " (expired)"
				}
				table.Add(g.ID(), whom(g), expires, map[bool]string{true: "by the hub", false: "by hand"}[g.Approve], fmt.Sprintf("%d of %d %s", len(used), g.Uses, strings.Join(used, ",")))
			}
			return table.Write(o.Out, o.Style(), 0)
		},
	})
}

func deleteTokenCommand(o *cli.Options, secrets func(context.Context) (corev1client.SecretInterface, error)) *cobra.Command {
	return leaf(&cobra.Command{
		Use: "delete ID...", Short: "Delete tokens: nobody joins with them any more", Args: cobra.MinimumNArgs(1), Example: "  workctl token delete 3f2a9c0d4b5e6f70",
		Long: "Deletes tokens by their ids. Clusters that have joined with them stay: workctl revoke ends those.",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := secrets(cmd.Context())
			if err != nil {
				return err
			}
			var errs []error
			for _, id := range args {
				err := join.DeleteToken(cmd.Context(), client, id)
				switch {
				case apierrors.IsNotFound(err):
					errs = append(errs, cli.Errorf("the hub has no token %s", id))
				case err != nil:
					errs = append(errs, cli.APIError("delete the token "+id, err))
				default:
					_, _ = fmt.Fprintf(o.Out, "token %s: deleted\n", id)
				}
			}
			return errors.Join(errs...)
		},
	})
}

func revokeClusterCommand(o *cli.Options) *cobra.Command {
	var reason string
	cmd := leaf(&cobra.Command{
		Use: "revoke CLUSTER... [--reason=TEXT]", Short: "Cut clusters off: no connection, no certificate and no works any more", Args: cobra.MinimumNArgs(1),
		Example: "  workctl revoke berlin --reason='stolen from the shop'",
		Long: "Has the hub give clusters no certificate any more, whatever they ask with, and no works: it annotates the ManagedCluster with\n" +
			"workwire.dev/revoked and sets hubAcceptsClient to false. The hub sends work-broker a list of the certificates that the clusters have\n" +
			"got, and their connections end within seconds. Other brokers are given that list, see docs/join.md.",
		ValidArgsFunction: complete(o, clusters),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := hub(o)
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := join.Revoke(cmd.Context(), reader.Clients, name, reason, time.Now()); err != nil {
					return cli.APIError("revoke the cluster "+name, err)
				}
				_, _ = fmt.Fprintf(o.Out, "managedcluster %s: revoked\n", name)
			}
			return nil
		},
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read the ManagedCluster")
	return cmd
}
