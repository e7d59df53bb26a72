package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/ctl/cli"
	"github.com/workwire/workwire/pkg/ctl/fleet"
	"github.com/workwire/workwire/pkg/hub/revisions"
)

func rolloutCommand(o *cli.Options) *cobra.Command {
	cmd := group("rollout", "Follow, pause, resume, undo, retry or approve the rollout of a set")
	cmd.AddCommand(rolloutStatusCommand(o), rolloutHistoryCommand(o), rolloutPauseCommand(o, true), rolloutPauseCommand(o, false), rolloutUndoCommand(o), rolloutRetryCommand(o), rolloutApproveCommand(o))
	return cmd
}

// rolloutLeaf returns a command about one set, SET or set/SET.
func rolloutLeaf(o *cli.Options, use, short, long string, run func(ctx context.Context, reader *fleet.Reader, namespace, name string) error) *cobra.Command {
	return leaf(&cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeNames(o, sets),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if t, err := parseTarget(cmd, args, sets); err == nil && len(t.names) == 1 {
				name = t.names[0]
			} else if len(args) != 1 {
				return usageError(cmd, cli.Usagef("name one set"))
			}
			reader, namespace, err := hubNamespace(o)
			if err != nil {
				return err
			}
			return run(cmd.Context(), reader, namespace, name)
		},
	})
}

func rolloutStatusCommand(o *cli.Options) *cobra.Command {
	var (
		watch   bool
		timeout time.Duration
	)
	cmd := rolloutLeaf(o, "status SET", "Follow a rollout until it is done",
		"Prints a line for each change of the rollout until all clusters have the newest template and succeeded with it. It ends\n"+
			"with exit code 1 if the rollout stops because too many clusters failed, has gone back to an earlier template, or does not\n"+
			"go on until somebody changes something, such as overrides that fail, and with 3 after --timeout.",
		func(ctx context.Context, reader *fleet.Reader, namespace, name string) error {
			ctx, cancel := bounded(ctx, timeout)
			defer cancel()
			return followRollout(ctx, reader, namespace, name, timeout, watch, func(r fleet.Rollout) bool {
				_, err := fmt.Fprintf(o.Out, "set %s/%s: %s\n%s", namespace, name, r.Line, r.Stages)
				return err != nil || !watch || r.Ended()
			})
		})
	cmd.Flags().BoolVarP(&watch, "watch", "w", true, "follow the rollout until it is done; false prints one line")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to follow; 0 means forever")
	return cmd
}

// followRollout calls show for each change of a rollout until it is done or show returns true. It fails if the
// rollout does not go on by itself and untilDone is set, or if it was not done within timeout, the time that ctx has left.
func followRollout(ctx context.Context, reader *fleet.Reader, namespace, name string, timeout time.Duration, untilDone bool,
	show func(fleet.Rollout) (stop bool)) error {
	var last fleet.Rollout
	err := reader.AwaitRollout(ctx, namespace, name, func(r fleet.Rollout) bool {
		last = r
		return show(r)
	})
	switch {
	case err == nil && untilDone && last.RolledBack:
		return cli.Errorf("the rollout of %s/%s has failed, and the clusters have an earlier template", namespace, name).
			Do("give the set a template that works, or try this one again: workctl rollout retry %s -n %s", name, namespace)
	case err == nil && untilDone && last.Stopped && !last.Done:
		return cli.Errorf("the rollout of %s/%s is stopped", namespace, name).
			Do("mend what the message names, or go back: workctl rollout undo %s -n %s", name, namespace)
	case err == nil && untilDone && last.Stalled && !last.Done:
		return cli.Errorf("the rollout of %s/%s does not go on by itself", namespace, name).Do("mend what the message names")
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return cli.Errorf("the rollout of %s/%s is not done after %s: %s", namespace, name, timeout, last.Line).WithCode(cli.ExitTimeout)
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	}
	return err
}

func rolloutHistoryCommand(o *cli.Options) *cobra.Command {
	var revision int64
	var format cli.FormatFlag
	cmd := rolloutLeaf(o, "history SET", "List the stored templates of a set",
		"Lists the revisions of a set's template by their numbers, with * for the one that the set has. An undo gives an earlier one\n"+
			"a new number. --revision prints one of them.",
		func(ctx context.Context, reader *fleet.Reader, namespace, name string) error {
			set, err := reader.Clients.WorkV1alpha1().ManifestWorkReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return cli.APIError("get the set "+name, err)
			}
			stored, err := revisions.List(ctx, reader.Clients, set)
			if err != nil {
				return cli.APIError("list the revisions", err)
			}
			hash, err := revisions.Hash(&set.Spec.ManifestWorkTemplate)
			if err != nil {
				return err
			}
			return writeHistory(o, stored, hash, revision, format.Format())
		})
	cmd.Flags().Int64Var(&revision, "revision", 0, "number of the revision to print; 0 lists all")
	format.Add(cmd, cli.Table, cli.JSON, cli.YAML, cli.JSONPath)
	return cmd
}

// writeHistory writes the stored revisions of a set whose template has this hash, or the one with a number.
func writeHistory(o *cli.Options, stored []revisions.Revision, hash string, revision int64, format cli.Format) error {
	rows := &cli.Rows{Header: []string{"REVISION", "CURRENT", "AGE", "CHANGE CAUSE"}}
	now := time.Now()
	for i := range stored {
		r := &stored[i]
		if revision == 0 {
			current := ""
			if r.Labels[workwirev1alpha1.TemplateHashLabelKey] == hash {
				current = "*"
			}
			rows.Add(strconv.FormatInt(r.Revision, 10), current, fleet.Age(now, &r.CreationTimestamp), r.Annotations[workwirev1alpha1.ChangeCauseAnnotationKey])
		} else if r.Revision == revision {
			if format == cli.Table {
				format = cli.YAML
			}
			return cli.WriteJSON(o.Out, format, r.Template)
		}
	}
	switch {
	case revision != 0:
		return cli.Errorf("revision %d is not stored", revision).Do("workctl rollout history lists those that are")
	case format != cli.Table:
		return cli.WriteJSON(o.Out, format, stored)
	}
	return rows.Write(o.Out, o.Style(), 0)
}

func rolloutPauseCommand(o *cli.Options, paused bool) *cobra.Command {
	use, short, long := "pause SET", "Stop a rollout where it is", "Gives the template to no further cluster until resumed. Clusters that have it keep it."
	if !paused {
		use, short, long = "resume SET", "Let a paused rollout go on", "Lets a paused rollout go on by its strategy."
	}
	var cmd *cobra.Command
	cmd = rolloutLeaf(o, use, short, long, func(_ context.Context, _ *fleet.Reader, _, name string) error {
		return setPaused(cmd, o, target{sets, []string{name}}, paused)
	})
	return cmd
}

func rolloutRetryCommand(o *cli.Options) *cobra.Command {
	return rolloutLeaf(o, "retry SET", "Try a template again that failed",
		"Rolls out the template of a set again that has gone back to an earlier one because too many clusters failed. It removes\n"+
			"the annotation workwire.dev/served-revision. If the template fails again, the set goes back again.",
		func(ctx context.Context, reader *fleet.Reader, namespace, name string) error {
			changed, err := reader.Retry(ctx, namespace, name)
			switch {
			case err != nil:
				return err
			case !changed:
				return cli.Errorf("set %s/%s has not gone back to an earlier template", namespace, name)
			}
			_, err = fmt.Fprintf(o.Out, "set %s/%s: its template is rolled out again\n", namespace, name)
			return err
		})
}

func rolloutUndoCommand(o *cli.Options) *cobra.Command {
	var to int64
	cmd := rolloutLeaf(o, "undo SET", "Roll out an earlier template",
		"Gives the set an earlier template, by default the one before. The hub rolls it out by the strategy of the set, as any\n"+
			"other change. workctl rollout history lists the revisions.",
		func(ctx context.Context, reader *fleet.Reader, namespace, name string) error {
			undone, err := revisions.Undo(ctx, reader.Clients, namespace, name, to)
			switch {
			case errors.Is(err, revisions.ErrNoEarlier), errors.Is(err, revisions.ErrUnknown):
				return cli.Errorf("%w", err).Do("see which there are: workctl rollout history %s -n %s", name, namespace)
			case errors.Is(err, revisions.ErrCurrent):
				return cli.Errorf("%w", err)
			case err != nil:
				return cli.APIError("undo the rollout", err)
			}
			text := fmt.Sprintf("set %s/%s: revision %d is rolled out again\n", namespace, name, undone.To)
			if undone.Paused {
				text += fmt.Sprintf("The set is paused. To go on: workctl rollout resume %s -n %s\n", name, namespace)
			}
			_, err = o.Out.Write([]byte(text))
			return err
		})
	cmd.Flags().Int64Var(&to, "to-revision", 0, "number of the revision; 0 means the one before")
	return cmd
}

func rolloutApproveCommand(o *cli.Options) *cobra.Command {
	var stage, reason string
	var revision int64
	cmd := rolloutLeaf(o, "approve SET", "Let the next stage of a rollout start",
		"Approves a stage of the RolloutPlan of a set for the revision that the set has, with your name at the API server. The hub\n"+
			"starts it when the stages before it are complete. Approvals of earlier revisions are dropped.",
		func(ctx context.Context, reader *fleet.Reader, namespace, name string) error {
			approval, err := reader.Approve(ctx, namespace, name, stage, revision, reason)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(o.Out, "set %s/%s: %s approved stage %s of revision %d\n", namespace, name, approval.By, approval.Stage, approval.Revision)
			return err
		})
	cmd.Flags().StringVar(&stage, "stage", "", "name of the stage, or preview; default: the first that waits for an approval")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	cmd.Flags().Int64Var(&revision, "to-revision", 0, "number of the revision that is approved: fails if the set has another; 0 means the one that it has")
	return cmd
}
