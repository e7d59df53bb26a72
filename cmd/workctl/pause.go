package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
)

// pauseCommand returns the command pause or resume.
func pauseCommand(o *cli.Options, paused bool) *cobra.Command {
	use, short, long := "pause", "Hold back newer specs of works or of whole clusters",
		"Holds back newer specs of a work, of all works of a cluster, or the rollout of a set. What is there stays there, and\n"+
			"statuses still come. Deletions are not held back. It annotates the object with workwire.dev/paused=true."
	if !paused {
		use, short, long = "resume", "Deliver what a pause held back",
			"Ends a pause: the newest specs are delivered, and a rollout goes on. It removes the annotation workwire.dev/paused."
	}
	cmd := leaf(&cobra.Command{
		Use:   use + " work|cluster|set NAME... [-n NAMESPACE]",
		Short: short, Long: long,
		Example:           fmt.Sprintf("  workctl %s work web -n cluster1\n  workctl %s cluster cluster1", use, use),
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(o, works, clusters, sets),
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(cmd, args, works, clusters, sets)
		if err != nil {
			return err
		}
		if len(t.names) == 0 {
			return usageError(cmd, cli.Usagef("name at least one %s", t.kind))
		}
		return setPaused(cmd, o, t, paused)
	}
	return cmd
}

func setPaused(cmd *cobra.Command, o *cli.Options, t target, paused bool) error {
	reader, namespace, err := hubNamespace(o)
	if err != nil {
		return err
	}
	done := map[bool]string{true: "paused", false: "resumed"}[paused]
	for _, name := range t.names {
		changed, err := reader.SetPaused(cmd.Context(), string(t.kind), namespace, name, paused)
		if err != nil {
			return err
		}
		text := done
		if !changed {
			text = map[bool]string{true: "paused already", false: "not paused"}[paused]
		}
		if _, err := fmt.Fprintf(o.Out, "%s %s: %s\n", t.kind, name, text); err != nil {
			return err
		}
	}
	return nil
}
