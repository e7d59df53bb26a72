package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/forget"
)

// forgetting is what workctl forget is told.
type forgetting struct {
	namespace  string
	yes, force bool
	timeout    time.Duration
}

func forgetCommand(o *cli.Options) *cobra.Command {
	var f forgetting
	cmd := leaf(&cobra.Command{
		Use: "forget CLUSTER [--yes] [--force]", Short: "End what the hub has of a cluster that is gone for good", Args: cobra.ExactArgs(1),
		Example: "  workctl forget rome\n  workctl forget rome --yes --timeout=5m",
		Long: "Ends the works of a cluster that is gone for good, with their finalizers, the tokens that name only it, its\n" +
			"CertificateSigningRequests, its ManagedCluster, its ClusterProfile and the namespace that the hub has made for it, after it has\n" +
			"said what is known to be left on the cluster. Nothing is deleted there: a cluster that returns keeps its objects, and is a stranger, see docs/clusters.md.\n" +
			"It can be interrupted at any point, and goes on when it is called again.",
		ValidArgsFunction: completeNames(o, clusters),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), o, args[0])
		},
	})
	fs := cmd.Flags()
	fs.BoolVar(&f.yes, "yes", false, "do not ask")
	fs.BoolVar(&f.force, "force", false, "forget a cluster that is connected, too: its objects stay, and nobody looks after them")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait until the ManagedCluster and the namespace are gone; exit code 3")
	hubNamespaceFlag(fs, &f.namespace)
	return cmd
}

func (f *forgetting) run(ctx context.Context, o *cli.Options, cluster string) error {
	reader, err := hub(o)
	if err != nil {
		return err
	}
	found, err := forget.Find(ctx, reader, cluster, f.namespace)
	if err != nil {
		return err
	}
	if found.NothingLeft() {
		_, err := fmt.Fprintf(o.Out, "cluster %s: the hub has nothing of it\n", cluster)
		return err
	}
	if _, err := io.WriteString(o.Err, found.Describe(time.Now())); err != nil {
		return err
	}
	if why := found.Refusal(); why != "" && !f.force {
		return cli.Errorf("cluster %s is not forgotten: %s", cluster, why).
			Do("delete its works, kubectl delete manifestworks -n %s --all, and forget it when they are gone; or use --force, and its objects stay there", cluster)
	}
	if err := f.confirm(o, cluster); err != nil {
		return err
	}
	left, err := found.End(ctx, f.timeout, func(done string) { _, _ = fmt.Fprintln(o.Out, done) })
	switch {
	case err != nil:
		return fmt.Errorf("%w\nWhat is done stays done: run the command again", err)
	case len(left) > 0:
		return cli.Errorf("left of cluster %s: %s", cluster, strings.Join(left, "; ")).WithCode(cli.ExitTimeout).
			Do("see what holds them, and run the command again")
	}
	_, err = fmt.Fprintf(o.Out, "cluster %s: forgotten\n", cluster)
	return err
}

// confirm has the user type the name of the cluster.
func (f *forgetting) confirm(o *cli.Options, cluster string) error {
	if f.yes {
		return nil
	}
	if !o.Interactive() {
		return cli.Usagef("nobody can be asked whether to forget %s: use --yes", cluster)
	}
	return askFor(o.In, o.Err, cluster)
}

// askFor returns an error unless the name is typed.
func askFor(in io.Reader, out io.Writer, name string) error {
	_, _ = fmt.Fprint(out, "Type the name of the cluster to forget it: ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if strings.TrimSpace(answer) != name {
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the answer: %w", err)
		}
		return cli.Errorf("cluster %s: not forgotten", name)
	}
	return nil
}
