package controller

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Result returns the label of a write in metrics: ok, exists, gone, conflict, canceled or failed.
func Result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsAlreadyExists(err):
		return "exists"
	case apierrors.IsNotFound(err):
		return "gone"
	case apierrors.IsConflict(err):
		return "conflict"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "failed"
	}
}
