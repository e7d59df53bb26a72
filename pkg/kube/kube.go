// Package kube makes the configuration with which a command talks to a
// Kubernetes API server: which one, as whom, and how fast.
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

// Options say how to reach an API server. Set defaults in the fields before
// [Options.AddFlags].
type Options struct {
	// Kubeconfig is a file; empty means the service account of the pod.
	Kubeconfig string
	// QPS is how many requests a second this process sends at most, over time.
	// 0 or less is no limit of its own: the API server's priority and fairness
	// then shares its capacity out.
	QPS float32
	// Burst is how many requests may exceed QPS at once; 0 is as many as QPS.
	Burst int
}

// AddFlags adds the flags that set o, with o's present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "file that says how to reach the Kubernetes API; default: the pod's service account")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS,
		"requests a second to the Kubernetes API at most; 0 or less: no limit but the API server's own priority and fairness")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "requests that may exceed --kube-api-qps at once; 0: as many as those of a second")
}

// Validate reports every fault of o, by flag and with what to do. It reads no
// file.
func (o *Options) Validate() []error {
	if o.Burst < 0 {
		return []error{fmt.Errorf("--kube-api-burst %d: want at least 1, or 0 for as many as --kube-api-qps", o.Burst)}
	}
	return nil
}

// RESTConfig reads the kubeconfig, or what a pod finds, and gives the
// configuration for clients that call themselves userAgent. Clients made from
// one RESTConfig do not share its limit: make one, and give it to all that
// shall.
func (o *Options) RESTConfig(userAgent string) (*rest.Config, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	config.QPS, config.Burst = o.QPS, o.Burst
	switch {
	case o.QPS <= 0:
		config.QPS = -1 // client-go takes 0 for "5"
	case o.Burst == 0:
		config.Burst = int(math.Ceil(float64(o.QPS))) // client-go takes 0 for "10"
	}
	return config, nil
}

func (o *Options) load() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("--kubeconfig is not set, and this is no pod with a service account: " +
				"name the kubeconfig file of the Kubernetes API to use")
		}
		if err != nil {
			return nil, fmt.Errorf("read the pod's service account (--kubeconfig names a file instead): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s (--kubeconfig): %w", o.Kubeconfig, err)
	}
	return config, nil
}
