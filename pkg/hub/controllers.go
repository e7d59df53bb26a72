package hub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The controllers that a hub runs besides delivery. Each can be disabled, as where another one does
// its work.
const (
	// ControllerClusters registers clusters and decides which are accepted and present.
	ControllerClusters = "clusters"
	// ControllerClusterSets writes the status of cluster sets and of their bindings.
	ControllerClusterSets = "clustersets"
	// ControllerPlacement selects clusters for Placements.
	ControllerPlacement = "placement"
	// ControllerReplicaSet creates the works of ManifestWorkReplicaSets.
	ControllerReplicaSet = "replicaset"
	// ControllerTTL deletes works that have finished.
	ControllerTTL = "ttl"
)

// Controllers returns the names of all controllers.
func Controllers() []string {
	return []string{ControllerClusters, ControllerClusterSets, ControllerPlacement, ControllerReplicaSet, ControllerTTL}
}

// ChooseControllers parses a list like kube-controller-manager's --controllers: "*" enables all,
// "name" enables one and "-name" disables one. It returns the enabled names, sorted, and reports
// each name that is unknown.
func ChooseControllers(list []string) ([]string, error) {
	var chosen, dropped []string
	var errs []error
	for _, item := range list {
		name, off := strings.CutPrefix(item, "-")
		switch {
		case item == "*":
			chosen = append(chosen, Controllers()...)
		case !slices.Contains(Controllers(), name):
			errs = append(errs, fmt.Errorf("unknown controller %q: want *, or some of %s, each with a leading - to disable it",
				name, strings.Join(Controllers(), ", ")))
		case off:
			dropped = append(dropped, name)
		default:
			chosen = append(chosen, name)
		}
	}
	chosen = slices.DeleteFunc(chosen, func(name string) bool { return slices.Contains(dropped, name) })
	slices.Sort(chosen)
	return slices.Compact(chosen), errors.Join(errs...)
}
