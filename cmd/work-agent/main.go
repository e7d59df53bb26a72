// Command work-agent keeps a cluster as the ManifestWorks that it receives over
// MQTT say, and reports their status. See docs/agent.md.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/command"
)

const (
	// gcPercent is the agent's GOGC where the environment sets none. What it holds is
	// packed and scanned in no time, so that collecting often costs less than the
	// memory (docs/performance.md) ...
	gcPercent = 50
	// ... but for an agent of few works, whose heap would be collected every moment:
	// this much more is counted as held. It is never touched, so takes no memory.
	gcBallast = 16 << 20
)

func main() {
	var ballast []byte
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
		ballast = make([]byte, gcBallast)
	}
	code := command.Main(newCommand())
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

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
