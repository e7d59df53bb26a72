package hub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The controllers that a hub runs besides publishing and intake. Each can be
// switched off, as where another one does its work.
const (
	// ControllerClusters registers clusters, and tells which are there.
	ControllerClusters = "clusters"
	// ControllerPlacement chooses clusters for Placements.
	ControllerPlacement = "placement"
	// ControllerReplicaSet makes the works of ManifestWorkReplicaSets.
	ControllerReplicaSet = "replicaset"
	// ControllerTTL deletes finished works.
	ControllerTTL = "ttl"
)

// Controllers are all of them, by name.
func Controllers() []string {
	return []string{ControllerClusters, ControllerPlacement, ControllerReplicaSet, ControllerTTL}
}

// ChooseControllers reads a list as of kube-controller-manager's --controllers:
// "*" stands for all, "name" is one to run, "-name" one not to. It gives the names
// to run, sorted, and reports each that is unknown.
func ChooseControllers(list []string) ([]string, error) {
	var chosen, dropped []string
	var faults []error
	for _, item := range list {
		name, off := strings.CutPrefix(item, "-")
		switch {
		case item == "*":
			chosen = append(chosen, Controllers()...)
		case !slices.Contains(Controllers(), name):
			faults = append(faults, fmt.Errorf("unknown controller %q: want *, or some of %s, each with - before it to leave it out",
				name, strings.Join(Controllers(), ", ")))
		case off:
			dropped = append(dropped, name)
		default:
			chosen = append(chosen, name)
		}
	}
	chosen = slices.DeleteFunc(chosen, func(name string) bool { return slices.Contains(dropped, name) })
	slices.Sort(chosen)
	return slices.Compact(chosen), errors.Join(faults...)
}
