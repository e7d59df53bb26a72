package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/join"
	"github.com/workwire/workwire/pkg/security/enrolment"
	"github.com/workwire/workwire/pkg/wire"
)

func joinCommand(o *cli.Options) *cobra.Command {
	var token string
	cmd := leaf(&cobra.Command{
		Use:   "join CLUSTER --token=TOKEN",
		Short: "Print the Secret with which a cluster joins",
		Long: "Prints the namespace and the Secret with which a cluster joins: its agent makes its key there, and gets its certificate over the\n" +
			"broker, see docs/join.md. A cluster whose broker has no identity to join with gets a certificate of workctl certs.",
		Example: "  workctl join berlin --token=$TOKEN | kubectl --context=berlin apply -f -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if token == "" {
				return usageError(cmd, cli.Usagef("--token is required: that of workctl token create"))
			}
			return joinByToken(o, wire.ClusterName(args[0]), token)
		},
	})
	cmd.Flags().StringVar(&token, "token", "", "token of workctl token create, or - to read it from the input; required")
	return cmd
}

// joinByToken prints what has a cluster join with a token.
func joinByToken(o *cli.Options, cluster wire.ClusterName, text string) error {
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
