// Package component has the Kubernetes programs in this binary. The name under which a process was
// started selects the program:
//
//	if run, ok := component.Lookup(filepath.Base(os.Args[0])); ok {
//		os.Exit(run())
//	}
//
// Each program takes its usual flags from os.Args and ends on SIGTERM. Only one can run in a
// process, since they set global state.
package component

import (
	"os"
	_ "time/tzdata" // time zones of CronJobs, on machines without a database of them

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's ways to log in
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/workwire/workwire/controlplane/internal/hubapi"
	"github.com/workwire/workwire/controlplane/internal/kine"
	"github.com/workwire/workwire/controlplane/internal/plane"
)

// Lookup returns the program called name, which runs until it is done and returns its exit status.
// ok is false if there is none.
func Lookup(name string) (run func() int, ok bool) {
	switch name {
	case plane.Etcd:
		return runEtcd, true
	case plane.Kine:
		return func() int { return kine.Run(os.Stdin, os.Stderr) }, true
	case plane.KubeAPIServer:
		return func() int { return cli.Run(apiserver.NewAPIServerCommand()) }, true
	case plane.HubAPIServer:
		return func() int { return cli.Run(hubapi.NewCommand()) }, true
	case plane.ControllerManager:
		return func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) }, true
	case plane.Scheduler:
		return func() int { return cli.Run(scheduler.NewSchedulerCommand()) }, true
	case plane.Kwok:
		return runKwok, true
	case plane.Kubectl:
		return runKubectl, true
	}
	return nil, false
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runKubectl() int {
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // a bad -v is reported when flags are parsed
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits
	}
	return 0
}
