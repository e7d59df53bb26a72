// Package hubapi is the API server of a hub: the generic control plane of Kubernetes, which is
// kube-apiserver without the APIs for running containers. It serves namespaces, RBAC,
// CustomResourceDefinitions, admission policies and webhooks, leases, events, Secrets and
// ConfigMaps, but no pods and no nodes.
//
//	os.Exit(cli.Run(hubapi.NewCommand()))
package hubapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/cacher"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	generic "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
)

// consistencyPeriod is how often the server compares its caches with etcd, 1 to 1.5 times. It reads everything for it: 10,000
// works take both of two cores for six seconds, in which every request waits. The default is five minutes. A cache that went wrong, as after a
// restore of PostgreSQL under a server that runs, is used for as long.
const consistencyPeriod = time.Hour

// NewCommand returns the command hub-apiserver. It has the flags of kube-apiserver that do not
// concern containers, and ends on SIGTERM.
func NewCommand() *cobra.Command {
	opts := generic.NewOptions()
	cmd := &cobra.Command{
		Use:          "hub-apiserver",
		Short:        "The API server of a hub: Kubernetes without pods and nodes",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			// The server is a client of itself; its warnings to itself are noise.
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
				return fmt.Errorf("setting feature gates: %w", err)
			}
			if err := logsapi.ValidateAndApply(opts.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return fmt.Errorf("setting up logs: %w", err)
			}
			return serve(server.SetupSignalContext(), opts)
		},
	}
	var sets cliflag.NamedFlagSets
	opts.AddFlags(&sets)
	global := sets.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	return cmd
}

func serve(ctx context.Context, opts *options.Options) error {
	cacher.ConsistencyCheckPeriod = consistencyPeriod
	completed, err := opts.Complete(ctx, nil, nil)
	if err != nil {
		return fmt.Errorf("completing the flags: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	config, err := generic.NewConfig(completed)
	if err != nil {
		return fmt.Errorf("configuring the server: %w", err)
	}
	// There is only one server. With more servers, each new CRD is served after five seconds, when
	// all servers know it.
	config.APIExtensions.ExtraConfig.MasterCount = 1

	completedConfig, err := config.Complete()
	if err != nil {
		return fmt.Errorf("completing the configuration: %w", err)
	}
	chain, err := newChain(completedConfig)
	if err != nil {
		return fmt.Errorf("building the server: %w", err)
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return fmt.Errorf("preparing the server: %w", err)
	}
	return prepared.Run(ctx)
}
