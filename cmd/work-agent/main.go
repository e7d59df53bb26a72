// Command work-agent keeps a cluster as the ManifestWorks that it receives over
// MQTT say, and reports their status. See docs/agent.md.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/command"
)

func main() { os.Exit(command.Main(newCommand())) }

func newCommand() *cobra.Command {
	o := newOptions()
	cmd := command.New(command.Config{
		Use:   "work-agent --cluster-name=NAME --transport-config=FILE",
		Short: "Keep a cluster as the ManifestWorks that come over MQTT say",
		Long: "Receives the ManifestWorks of one cluster from an MQTT broker, applies them and reports their status.\n" +
			"It never talks to a hub's API server. work-agent health tells whether the one that runs here is ready.",
		Sections: o.sections(),
		// So that this binary can take the place of OCM's agent.
		Aliases: map[string]string{
			"workload-source-driver": "transport",
			"workload-source-config": "transport-config",
			"spoke-cluster-name":     "cluster-name",
			"spoke-kubeconfig":       "kubeconfig",
			"cloudevents-client-id":  "client-id",
			"workload-agent-workers": "workers",
		},
		Validate: o.validate,
		Run:      o.run,
	})
	cmd.AddCommand(command.Health("http://" + o.serve.Address + "/readyz"))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
