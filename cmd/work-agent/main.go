// Command work-agent applies the ManifestWorks that it receives over MQTT to a cluster, and reports
// their status. See docs/agent.md.
package main

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/runtime/command"
)

// gcPercent is the default of GOGC. The agent's heap is compressed and quickly scanned, so frequent
// collections cost less than the memory that they save. See docs/agent.md.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(command.Main(newCommand()))
}

func newCommand() *cobra.Command { return newCommandOf(newOptions()) }

// newCommandOf returns the command whose flags set o.
func newCommandOf(o *options) *cobra.Command {
	cmd := command.New(command.Config{
		Use:   "work-agent --cluster-name=NAME --transport-config=FILE",
		Short: "Apply ManifestWorks from an MQTT broker to a cluster",
		Long: "Receives the ManifestWorks of one cluster from an MQTT broker, applies them and reports their status.\n" +
			"It does not connect to a hub's API server. work-agent health reports whether the agent on this machine is ready.",
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
