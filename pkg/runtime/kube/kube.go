// Package kube configures clients of a Kubernetes API server by flags, and has what their users
// share: patches, and metrics of requests and queues.
//
//	options := kube.Options{QPS: 50, Burst: 100}
//	options.AddFlags(flags)
//	...
//	config, err := options.RESTConfig("work-agent")
package kube

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options configure clients of an API server by flags. Set the defaults of the flags in the fields
// before [Options.AddFlags].
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; default the pod's service account.
	Kubeconfig string
	// QPS limits the requests per second of each client made from the configuration. 0 or less means no limit: then only the
	// API server's priority and fairness limits the requests.
	QPS float32
	// Burst is the number of requests that may exceed QPS at once; 0 means as many as QPS.
	Burst int
}

// AddFlags adds the flags that set o, with the current values of o as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file for the Kubernetes API (default: the pod's service account)")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS,
		"maximum requests per second to the Kubernetes API of each of the clients in this process; 0 or less means no limit except the API server's priority and fairness")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "number of requests that may exceed --kube-api-qps at once; 0 means as many as --kube-api-qps")
}

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() []error {
	if o.Burst < 0 {
		return []error{fmt.Errorf("--kube-api-burst must be at least 1, or 0 for as many as --kube-api-qps, got %d", o.Burst)}
	}
	return nil
}

// RESTConfig reads the kubeconfig or the pod's service account, and returns the configuration for
// clients with the given user agent. Each client made from it has a rate limit of its own.
func (o *Options) RESTConfig(userAgent string) (*rest.Config, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	config.QPS, config.Burst = o.QPS, o.Burst
	switch {
	case o.QPS <= 0:
		config.QPS = -1 // for client-go, 0 means 5
	case o.Burst == 0:
		config.Burst = int(math.Ceil(float64(o.QPS))) // for client-go, 0 means 10
	}
	return config, nil
}

func (o *Options) load() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("--kubeconfig is required outside of a pod: set the kubeconfig file of the Kubernetes API")
		}
		if err != nil {
			return nil, fmt.Errorf("read the pod's service account: %w; to use a kubeconfig file, set --kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s (--kubeconfig): %w", o.Kubeconfig, err)
	}
	return config, nil
}
