// Package crds holds the CustomResourceDefinitions of the project.
//
// The YAML files in this directory are generated from pkg/apis (make generate) and can be applied
// with kubectl as well; optional has those of others. A hub needs those of [Hub], the cluster of an agent those of [Spoke], and each
// may have those of [Optional] and [SpokeOptional]:
//
//	err := install.CRDs(ctx, config, crds.Hub()...)
package crds

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml optional/*.yaml
var files embed.FS

const manifestWorks = "work.open-cluster-management.io_manifestworks.yaml"

// Hub returns new copies of the definitions that a hub needs: ManifestWork, ManifestWorkReplicaSet,
// ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement, PlacementDecision,
// AddOnPlacementScore, ManifestWorkReplicaSetRevision, WorkOverride and RolloutPlan.
func Hub() []*apiextensionsv1.CustomResourceDefinition {
	return read(
		manifestWorks,
		"work.open-cluster-management.io_manifestworkreplicasets.yaml",
		"cluster.open-cluster-management.io_managedclusters.yaml",
		"cluster.open-cluster-management.io_managedclustersets.yaml",
		"cluster.open-cluster-management.io_managedclustersetbindings.yaml",
		"cluster.open-cluster-management.io_placements.yaml",
		"cluster.open-cluster-management.io_placementdecisions.yaml",
		"cluster.open-cluster-management.io_addonplacementscores.yaml",
		"workwire.dev_manifestworkreplicasetrevisions.yaml",
		"workwire.dev_workoverrides.yaml",
		"workwire.dev_rolloutplans.yaml",
	)
}

// ManifestWork returns a new copy of the definition of ManifestWorks.
func ManifestWork() *apiextensionsv1.CustomResourceDefinition { return read(manifestWorks)[0] }

// Spoke returns new copies of the definitions that the cluster of an agent needs:
// AppliedManifestWork.
func Spoke() []*apiextensionsv1.CustomResourceDefinition {
	return read("work.open-cluster-management.io_appliedmanifestworks.yaml")
}

// SpokeOptional returns new copies of the definitions that the cluster of an agent may have: ClusterClaim.
func SpokeOptional() []*apiextensionsv1.CustomResourceDefinition {
	return read("cluster.open-cluster-management.io_clusterclaims.yaml")
}

// Optional returns new copies of the definitions of others that a hub uses only if it is told to: ClusterProfile
// (multicluster.x-k8s.io), for --cluster-profiles.
func Optional() []*apiextensionsv1.CustomResourceDefinition {
	return read("optional/multicluster.x-k8s.io_clusterprofiles.yaml")
}

// read decodes embedded files. It panics on one that cannot be read, which is an error of the
// build.
func read(names ...string) []*apiextensionsv1.CustomResourceDefinition {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("crds: embedded file: %v", err))
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			panic(fmt.Sprintf("crds: embedded file %s: %v", name, err))
		}
		definitions = append(definitions, definition)
	}
	return definitions
}
