package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Patch applies a JSON patch, a merge patch or a strategic merge patch to a work. A resourceVersion
// in the patch must be the work's. The lists in a work have no merge keys, so a strategic merge
// patch replaces them like a merge patch.
func (m *manifestWorks) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*workv1.ManifestWork, error) {
	uid, dry, err := m.resolveWrite(ctx, name, opts.DryRun)
	switch {
	case err != nil:
		return nil, err
	case len(subresources) == 1 && subresources[0] == "status":
		return nil, errStatusUpdate(name)
	case len(subresources) > 0:
		return nil, apierrors.NewNotFound(worksResource, name+"/"+strings.Join(subresources, "/"))
	case opts.Force != nil:
		return nil, apierrors.NewBadRequest("force is only allowed in apply patches")
	}
	patch, err := newPatch(kind, data)
	if err != nil {
		return nil, err
	}
	return m.client.update(ctx, uid, name, dry, func(old *workv1.ManifestWork) (*workv1.ManifestWork, error) {
		return applyPatch(old, patch, opts.FieldValidation)
	})
}

// newPatch parses a patch. It returns a function that applies the patch to the JSON of a work.
func newPatch(kind types.PatchType, data []byte) (func([]byte) ([]byte, error), error) {
	data = slices.Clone(data) // see applyOnce
	switch kind {
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("parse JSON patch: %v", err))
		}
		return patch.Apply, nil
	case types.MergePatchType:
		return func(work []byte) ([]byte, error) { return jsonpatch.MergePatch(work, data) }, nil
	case types.StrategicMergePatchType:
		return func(work []byte) ([]byte, error) {
			return strategicpatch.StrategicMergePatch(work, data, workv1.ManifestWork{})
		}, nil
	default:
		err := apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", worksResource, "", "", 0, false)
		err.ErrStatus.Message = fmt.Sprintf("patches of type %q are not supported by a source without an API server: use %s, %s or %s",
			kind, types.MergePatchType, types.JSONPatchType, types.StrategicMergePatchType)
		return nil, err
	}
}

// applyPatch returns a copy of old with the patch applied.
func applyPatch(old *workv1.ManifestWork, patch func([]byte) ([]byte, error), fieldValidation string) (*workv1.ManifestWork, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("encode work %s/%s: %w", old.Namespace, old.Name, err))
	}
	after, err := patch(before)
	if err != nil {
		refused := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", worksResource, old.Name, "", 0, false)
		refused.ErrStatus.Message = fmt.Sprintf("apply patch to ManifestWork %q: %v", old.Name, err)
		return nil, refused
	}
	var next workv1.ManifestWork
	strict, err := kjson.UnmarshalStrict(after, &next)
	if err == nil && fieldValidation == metav1.FieldValidationStrict {
		err = errors.Join(strict...)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("ManifestWork %q is invalid with the patch: %v", old.Name, err))
	}
	return &next, nil
}
