// Command work-hub delivers the ManifestWorks of a Kubernetes API to the agents of their clusters
// over MQTT and stores the statuses that come back. See package hub.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/runtime/command"
)

// gcPercent is the default of GOGC. The hub's heap is compressed and quickly scanned, so frequent
// collections cost less than the memory that they save. See docs/hub.md.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(command.Main(newCommand(os.Stderr)))
}

// newCommand returns the command. It logs to logs.
func newCommand(logs io.Writer) *cobra.Command {
	o := newOptions()
	cmd := command.New(command.Config{
		Use:   "work-hub --source-id=ID --transport-config=FILE --kubeconfig=FILE",
		Short: "Publish the ManifestWorks of a Kubernetes API over MQTT",
		Long: "Delivers the ManifestWorks of a Kubernetes API to the agents of their clusters over MQTT, and stores the\n" +
			"statuses that come back. A work's namespace names its cluster. The API needs deploy/crds, and may be a\n" +
			"cluster or bin/controlplane up --role=hub. work-hub health reports whether the hub that runs here is ready.",
		Sections: o.sections(),
		Validate: o.validate,
		Run:      func(ctx context.Context) error { return o.run(ctx, logs) },
	})
	cmd.AddCommand(command.Health("http://" + o.serve.Address + "/readyz"))
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}
