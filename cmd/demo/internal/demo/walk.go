package demo

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/examples"
)

// step is a part of the walk: what the demo does itself, commands for the shell, and how to look at what has come of them. A command can
// end with the remark "  # until TEXT", where it is stopped at a line with that text, or "  # exit status N". Its .demo is the demo's directory.
type step struct {
	title    string
	before   func(*stage, context.Context) error // nil: nothing
	commands []string
	look     []string
}

const (
	progress = "kubectl -n ocm-ns get manifestworkreplicaset web --watch -o jsonpath-file=.demo/progress  # until "
	approve  = "workctl rollout approve web -n ocm-ns --reason="
)

// steps are those of a rollout: values of each cluster, a preview, stages, of which one fails and goes back by itself, its fix, which somebody
// approves, and a cluster that is off meanwhile. No command waits for what the rollout may still say of an earlier step.
var steps = []step{
	{
		title:  "two clusters more (1 GB of memory), with labels: cluster1 is the canary",
		before: (*stage).addClusters,
		commands: []string{
			"kubectl label managedcluster cluster1 stage=canary",
			"kubectl label managedcluster cluster2 cluster3 stage=prod",
			"kubectl wait managedcluster --all --for=condition=ManagedClusterConditionAvailable --timeout=3m",
		},
		look: []string{"kubectl get managedclusters --show-labels"},
	},
	{
		title: "one Deployment for all, which must be ready on a cluster for 3s before the next one gets it",
		commands: []string{
			"kubectl create namespace ocm-ns",
			"kubectl apply -f .demo/examples/replicaset/cluster-set-binding.yaml -f .demo/examples/replicaset/canary-placement.yaml",
			"sed 's/minSuccessTime: 10s/minSuccessTime: 3s/' .demo/examples/replicaset/canary-mwrset.yaml > .demo/web.yaml",
			"kubectl apply -f .demo/web.yaml",
			"kubectl -n ocm-ns annotate manifestworkreplicaset web workwire.dev/on-failure=Rollback",
			`echo "{.status.conditions[?(@.type=='Progressing')]['reason','message']}" > .demo/progress`,
			progress + "Complete",
		},
		look: []string{"kubectl -n ocm-ns get manifestworkreplicaset web"},
	},
	{
		title: "values of each cluster: its name becomes a label of its Deployment",
		commands: []string{
			"kubectl apply -f .demo/examples/replicaset/canary-override.yaml",
			"kubectl --kubeconfig .demo/spoke/kubeconfig wait deployment web --for=jsonpath='{.metadata.labels.cluster}'=cluster1 --timeout=3m",
			"kubectl --kubeconfig .demo/cluster2/kubeconfig wait deployment web --for=jsonpath='{.metadata.labels.cluster}'=cluster2 --timeout=3m",
			"kubectl --kubeconfig .demo/cluster3/kubeconfig wait deployment web --for=jsonpath='{.metadata.labels.cluster}'=cluster3 --timeout=3m",
			// What it goes back to has succeeded everywhere for minSuccessTime.
			`kubectl -n ocm-ns wait manifestworkreplicaset web --for=jsonpath='{.metadata.annotations.workwire\.dev/proven-revision}'=1 --timeout=3m`,
		},
		look: []string{"kubectl --kubeconfig .demo/cluster2/kubeconfig get deployment web --show-labels"},
	},
	{
		title: "what a change would do, asked of all clusters before it is made",
		commands: []string{
			"sed 's/nginx:1.27/nginx:1.28/; s/progressDeadline: 10m/progressDeadline: 15s/' .demo/web.yaml > .demo/change.yaml",
			"echo '                nodeSelector: {disk: fast}' >> .demo/change.yaml",
			"workctl diff set -f .demo/change.yaml -n ocm-ns --transport=.demo/" + sourceID + ".yaml  # exit status 4",
		},
	},
	{
		title: "stages: the canary, and production once somebody has approved it",
		commands: []string{
			"kubectl apply -f .demo/examples/replicaset/canary-plan.yaml",
			"kubectl -n ocm-ns annotate manifestworkreplicaset web workwire.dev/rollout-plan=careful",
		},
		look: []string{"kubectl -n ocm-ns get rolloutplans"},
	},
	{
		title:    "made, it fits on no node: it stops at the stage canary, which goes back",
		commands: []string{"kubectl apply -f .demo/change.yaml", progress + "RolledBack"},
		look: []string{
			"kubectl -n ocm-ns describe manifestworkreplicaset web", "kubectl --kubeconfig .demo/spoke/kubeconfig get deployments,pods -l app=web",
		},
	},
	{
		title: "its fix, and when the canary is well, somebody approves production",
		commands: []string{
			"sed s/nginx:1.27/nginx:1.28/ .demo/web.yaml | kubectl apply -f -",
			progress + "WaitsForApproval",
			"workctl rollout status web -n ocm-ns --watch=false",
			approve + "'the canary is well'",
			progress + "Complete",
		},
		look: []string{"kubectl -n ocm-ns get manifestworkreplicasetrevisions --sort-by=.revision"},
	},
	{
		title:  "cluster3 is off: the others do not wait for it",
		before: (*stage).stopCluster3,
		commands: []string{
			"kubectl wait managedcluster cluster3 --for=condition=ManagedClusterConditionAvailable=Unknown --timeout=3m",
			"sed s/nginx:1.27/nginx:1.29/ .demo/web.yaml | kubectl apply -f -",
			progress + "WaitsForApproval",
			approve + "'two of three will do'",
			progress + "2 of 3 clusters succeeded",
		},
		look: []string{"kubectl get managedclusters", "kubectl -n cluster3 get manifestworks"},
	},
	{
		title:    "cluster3 is back",
		before:   (*stage).startCluster3,
		commands: []string{progress + "Complete"},
		look:     []string{"kubectl --kubeconfig .demo/cluster3/kubeconfig get deployment web -o wide"},
	},
}

// walk goes the steps. Each has as long as s.Timeout.
func (s *stage) walk(ctx context.Context) error {
	if err := os.CopyFS(s.path("examples"), examples.Files); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "\nNow a rollout, with the commands that are printed ($). To run some yourself, in another terminal here:\n  %s\n", s.exports())
	s.shown = map[string]bool{"": true}
	for _, step := range steps {
		fmt.Fprintf(s.Out, "\n== %s\n", step.title)
		if err := s.perform(ctx, step); err != nil {
			return fmt.Errorf("%s: %w; the logs are in %s", step.title, err, s.Dir)
		}
		for _, command := range step.look {
			fmt.Fprintf(s.Out, "        look: %s\n", s.here(command))
		}
	}
	return nil
}

// perform does a step. The end of a program ends it.
func (s *stage) perform(ctx context.Context, step step) error {
	bounded, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("not done within %v", s.Timeout))
	defer cancel()
	if step.before != nil {
		if err := step.before(s, bounded); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancelCause(bounded)
	defer end(nil)
	for _, p := range s.running {
		go func() {
			select {
			case <-p.Done():
				end(p.Died())
			case <-ctx.Done():
			}
		}()
	}
	for _, command := range step.commands {
		if err := s.do(ctx, command); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

// do prints a command, runs it, and prints what it prints, each line once in a walk. What kubectl says of what it has done is left out.
func (s *stage) do(ctx context.Context, command string) error {
	command = s.here(command)
	s.say("$ %s", command)
	_, remark, _ := strings.Cut(command, "  # ")
	until, watches := strings.CutPrefix(remark, "until ")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.path("hub/kubeconfig"), "PATH="+s.Bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // the shell, and what it has started
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	last, reached := "", false
	for lines := bufio.NewScanner(out); !reached && lines.Scan(); {
		last = lines.Text()
		if (watches || strings.HasPrefix(command, "workctl ")) && !s.shown[last] {
			s.shown[last] = true
			s.say("%s", last)
		}
		reached = watches && strings.Contains(last, until)
	}
	if reached {
		stop()
	}
	_ = cmd.Wait() // the state says it
	if how := cmd.ProcessState.String(); !reached && how != cmp.Or(remark, "exit status 0") {
		return fmt.Errorf("%s: %s: %s", command, how, last)
	}
	return nil
}

// here returns a command for the demo's directory.
func (s *stage) here(command string) string {
	dir := s.relative(s.Dir)
	if strings.Contains(dir, " ") {
		dir = "'" + dir + "'"
	}
	return strings.ReplaceAll(command, ".demo/", dir+"/")
}

// addClusters starts two clusters more.
func (s *stage) addClusters(ctx context.Context) error {
	names := []string{"cluster2", "cluster3"}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, name := range names {
		group.Go(func() error { return s.startSpoke(groupCtx, name) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.join(ctx, "agent-"+name, name, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) stopCluster3(context.Context) error {
	s.say("stopping the agent of cluster3")
	return s.stop(s.running[len(s.running)-1]) // which has been started last
}

func (s *stage) startCluster3(context.Context) error {
	s.say("starting the agent of cluster3")
	_, err := s.startAgent("agent-cluster3", "cluster3", "cluster3")
	return err
}
