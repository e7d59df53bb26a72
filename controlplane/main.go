// Command controlplane runs a Kubernetes control plane from one binary, for demos, for tests, and
// for hubs without a cluster:
//
//	controlplane up --role=spoke --dir=/tmp/spoke
//
// Started under the name of a component (etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubectl), it runs that component with its usual flags. See README.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/workwire/workwire/controlplane/internal/backup"
	"github.com/workwire/workwire/controlplane/internal/cli"
	"github.com/workwire/workwire/controlplane/internal/component"
	"github.com/workwire/workwire/controlplane/internal/process"
)

func main() {
	if run, ok := component.Lookup(filepath.Base(os.Args[0])); ok {
		process.ExitWithParent()
		os.Exit(run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := cli.NewCommand(backup.NewSnapshot(), backup.NewRestore()).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}
