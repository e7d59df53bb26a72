package component

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

// runKwok runs KWOK's controller, which simulates the kubelets.
func runKwok() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// KWOK reads its global flags before it builds its command.
	global := pflag.NewFlagSet("global", pflag.ContinueOnError)
	global.ParseErrorsAllowlist.UnknownFlags = true
	global.Usage = func() {}
	ctx, _ = kwoklog.InitFlags(ctx, global)
	ctx, err := kwokconfig.InitFlags(ctx, global)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading KWOK's configuration:", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(global)
	// Kubernetes has a global flag --version of another type, with which cobra's own check for
	// --version would fail.
	command.Version = ""
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "running KWOK:", err)
		return 1
	}
	return 0
}
