package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/doctor"
	"github.com/workwire/workwire/pkg/wire"
)

func doctorCommand(o *cli.Options) *cobra.Command {
	var (
		format                cli.FormatFlag
		cluster, role, rights string
		signingKey            string
		timeout               time.Duration
		noBroker, noAPI       bool
	)
	cmd := leaf(&cobra.Command{
		Use:   "doctor [--cluster=NAME] [--as=source|agent]",
		Short: "Check the broker, the agent and the API server, with what to do about each fault",
		Long: "Checks with the transport configuration: each address of the broker, TLS, names and expiry of certificates, the\n" +
			"login, subscribing and publishing, and with --cluster whether the agent answers, and its clock. Checks with the kubeconfig:\n" +
			"the API server, its clock, definitions, rights, and the ManagedCluster of --cluster. It changes nothing.\n" +
			"The exit code is 0 without a fault, and 4 with one.",
		Example: "  workctl doctor --transport=hub1.yaml --cluster=cluster1\n" +
			"  workctl doctor --as=agent --cluster=cluster1 --transport=cluster1.yaml --kubeconfig=cluster1.kubeconfig",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := doctor.Config{Role: doctor.Role(role), Rights: doctor.Role(rights), Cluster: wire.ClusterName(cluster), Timeout: timeout}
			if err := validateDoctor(c); err != nil {
				return err
			}
			var err error
			if c.Sign, err = signWith(signingKey); err != nil {
				return err
			}
			if !noBroker && (o.Transport != "" || os.Getenv(cli.TransportEnv) != "") {
				broker, err := o.Broker()
				if err != nil {
					return err
				}
				c.Broker = &broker
			}
			if !noAPI {
				rest, err := o.RESTConfig()
				if err != nil && (c.Broker == nil || o.Kubeconfig != "" || o.Context != "") {
					return err
				}
				c.REST = rest
			}
			results := doctor.Run(cmd.Context(), c)
			if err := printResults(o, format.Format(), results); err != nil {
				return err
			}
			if doctor.Worst(results) == doctor.Fault {
				return cli.Errorf("there are faults").WithCode(cli.ExitNo)
			}
			return nil
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&cluster, "cluster", "", "cluster whose agent must answer (default: none, and these checks are skipped)")
	fs.StringVar(&role, "as", string(doctor.Source), "whose transport configuration and API server they are: source or agent; an agent needs --cluster")
	fs.StringVar(&rights, "rights", "", "whose rights the kubeconfig must have: operator, source or agent (default: operator; with --as=agent, agent)")
	fs.StringVar(&signingKey, "signing-key", "", "file with the source's private key, for agents that demand signatures; with --as=agent the agent's, for hubs with --trusted-agents (default: the question is not signed)")
	fs.DurationVar(&timeout, "timeout", 10*time.Second, "maximum time of each check")
	fs.BoolVar(&noBroker, "skip-broker", false, "check the API server only")
	fs.BoolVar(&noAPI, "skip-api", false, "check the broker only")
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	return cmd
}

func validateDoctor(c doctor.Config) error {
	switch {
	case c.Role != doctor.Source && c.Role != doctor.Agent:
		return cli.Usagef("--as must be source or agent, got %q", c.Role)
	case c.Role == doctor.Agent && c.Cluster == "":
		return cli.Usagef("--as=agent needs --cluster: the agent's cluster")
	case c.Rights != "" && c.Rights != doctor.Source && c.Rights != doctor.Agent && c.Rights != doctor.Operator:
		return cli.Usagef("--rights must be operator, source or agent, got %q", c.Rights)
	case c.Timeout <= 0:
		return cli.Usagef("--timeout must be more than 0, got %s", c.Timeout)
	}
	return nil
}

// tones are the colours of verdicts.
var tones = map[doctor.Verdict]cli.Tone{doctor.Good: cli.Good, doctor.Warning: cli.Warn, doctor.Fault: cli.Bad, doctor.Skipped: cli.Dim}

func printResults(o *cli.Options, format cli.Format, results []doctor.Result) error {
	if format != cli.Table {
		return cli.WriteJSON(o.Out, format, map[string]any{"checks": results})
	}
	rows := cli.Rows{Header: []string{"VERDICT", "CHECK", "MESSAGE"}}
	for _, r := range results {
		message := r.Message
		if r.Fix != "" {
			message = strings.TrimSuffix(message, ".") + ". What to do: " + r.Fix
		}
		rows.Add(cli.Cell{Text: string(r.Verdict), Tone: tones[r.Verdict]}, r.Check, message)
	}
	return rows.Write(o.Out, o.Style(), 0)
}
