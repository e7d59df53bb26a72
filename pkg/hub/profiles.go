package hub

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/hub/internal/profiles"
	"github.com/workwire/workwire/pkg/wire"
)

// ClusterManager returns the name of a hub as a cluster manager, by which the consumers of ClusterProfiles select.
func ClusterManager(source wire.SourceID) string { return "workwire-" + string(source) }

// validateProfiles reports every fault of ClusterProfiles.
func (c *Config) validateProfiles(withoutClusters bool) (errs []error) {
	if c.ClusterProfiles == "" {
		return nil
	}
	if withoutClusters {
		errs = append(errs, fmt.Errorf("ClusterProfiles needs the controller %s, which Controllers disables", ControllerClusters))
	}
	for _, fault := range validation.IsDNS1123Label(c.ClusterProfiles) {
		errs = append(errs, fmt.Errorf("ClusterProfiles must be a namespace, got %q: %s", c.ClusterProfiles, fault))
	}
	if name := ClusterManager(c.Source); len(validation.IsValidLabelValue(name)) > 0 {
		errs = append(errs, fmt.Errorf("ClusterProfiles needs a source id with which %s is the value of a label: at most %d characters", name, validation.LabelValueMaxLength))
	}
	return errs
}

// buildProfiles creates what keeps ClusterProfiles.
func (h *Hub) buildProfiles(queues workqueue.MetricsProvider) error {
	if h.cfg.ClusterProfiles == "" {
		return nil
	}
	client, err := dynamic.NewForConfig(h.cfg.REST)
	if err != nil {
		return fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	c, err := profiles.New(profiles.Config{
		Clusters: h.informers.ManagedClusters(), Client: client, Namespace: h.cfg.ClusterProfiles, Manager: ClusterManager(h.cfg.Source), Queues: queues, Logger: h.cfg.Logger,
	})
	if err != nil {
		return err
	}
	h.global = append(h.global, component{name: "clusterprofiles", run: c.Run, ready: c.Ready})
	return nil
}
