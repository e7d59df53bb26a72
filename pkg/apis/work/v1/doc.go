// +k8s:deepcopy-gen=package
// +groupName=work.open-cluster-management.io

// Package v1 is the API group work.open-cluster-management.io/v1.
//
// A [ManifestWork] lives on the hub, in the namespace of one cluster. It lists the objects to apply
// to that cluster ("manifests"), defines how to apply, watch and delete them, and reports their
// state in its status. The agent stores one [AppliedManifestWork] per ManifestWork on the cluster,
// which lists the applied objects and owns them.
//
// The JSON names are those of Open Cluster Management, so that its users, YAML and clients work
// unchanged:
//
//	work := &v1.ManifestWork{
//		ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "hello"},
//		Spec: v1.ManifestWorkSpec{
//			Workload: v1.ManifestsTemplate{Manifests: []v1.Manifest{
//				{RawExtension: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap",...}`)}},
//			}},
//		},
//	}
//	work, err := clients.WorkV1().ManifestWorks("cluster1").Create(ctx, work, metav1.CreateOptions{})
//
// Register the types with [AddToScheme]. The CustomResourceDefinitions are in deploy/crds, clients
// in pkg/client. Values of these types are plain data: not safe for concurrent writes, copied with
// DeepCopy.
package v1
