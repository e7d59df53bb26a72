package applied

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

// Status is the part of the status that [Client.UpdateStatus] writes.
type Status struct {
	// Resources are the existing objects of the work.
	Resources []Resource
	// Transitions are the work's conditions as [EncodeTransitions] returns them; "" removes them.
	Transitions string
}

// UpdateStatus writes status to amw, as far as it differs, in one request or none. It leaves other
// fields of the status alone. It returns an error if amw does not exist any more, has changed, or another
// AppliedManifestWork has its name.
//
// If the cluster has another definition of AppliedManifestWorks than ours, the API server drops the
// transitions and the digests. Client detects this and no longer writes them.
func (c *Client) UpdateStatus(ctx context.Context, amw *workv1.AppliedManifestWork, status Status) (*workv1.AppliedManifestWork, error) {
	list := statusOf(status.Resources)
	if c.digestsPruned.Load() {
		removeDigests(list)
	}
	var changes kube.JSONPatch
	listed := !equality.Semantic.DeepEqual(list, amw.Status.AppliedResources)
	if listed {
		changes = append(changes, kube.JSONPatchOperation{Op: "add", Path: "/status/appliedResources", Value: list})
	}
	timed := !c.pruned.Load() && status.Transitions != amw.Status.Transitions
	switch {
	case timed && status.Transitions == "":
		changes = append(changes, kube.JSONPatchOperation{Op: "remove", Path: "/status/transitions"})
	case timed:
		changes = append(changes, kube.JSONPatchOperation{Op: "add", Path: "/status/transitions", Value: status.Transitions})
	}
	if len(changes) == 0 {
		return amw, nil
	}
	patched, err := c.patchStatus(ctx, amw, changes...)
	if err != nil {
		return nil, err
	}
	if listed && removeDigests(list) && !removeDigests(slices.Clone(patched.Status.AppliedResources)) && !c.digestsPruned.Swap(true) {
		c.config.Logger.Warn("the definition of AppliedManifestWorks on the cluster has no fieldsDigest: after a restart of the agent " +
			"each object is read and may be written again; install this project's definition and restart the agent")
	}
	if timed && status.Transitions != "" && patched.Status.Transitions == "" && !c.pruned.Swap(true) {
		c.config.Logger.Warn("the definition of AppliedManifestWorks on the cluster has no transitions: a restart of the agent " +
			"resets transition times and completion; install this project's definition and restart the agent")
	}
	return patched, nil
}

// removeDigests removes the digests of a list, and reports whether it had any.
func removeDigests(list []workv1.AppliedManifestResourceMeta) bool {
	had := false
	for i := range list {
		had = had || list[i].FieldsDigest != ""
		list[i].FieldsDigest = ""
	}
	return had
}
