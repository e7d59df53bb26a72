package strategy

import (
	"errors"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/order"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// PlaceOf returns the place that an object on the cluster has by its annotations.
func PlaceOf(live *unstructured.Unstructured) order.Item {
	var m Manifest
	_ = m.readOrder(live) // what is invalid was not applied
	return order.Item{Hook: m.Hook, Wave: m.Wave}
}

// readOrder sets Wave and Hook as the annotations say, and returns why they are invalid. An invalid wave counts as 0.
func (m *Manifest) readOrder(desired *unstructured.Unstructured) error {
	annotations := desired.GetAnnotations()
	if text, ok := annotations[workv1.WaveAnnotationKey]; ok {
		wave, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("annotation %s is %q: it must be an integer, or absent", workv1.WaveAnnotationKey, text)
		}
		m.Wave = int(wave)
	}
	hook, ok := annotations[workv1.HookAnnotationKey]
	if !ok {
		return nil
	}
	if hook != workv1.HookBefore && hook != workv1.HookAfter {
		return fmt.Errorf("annotation %s is %q: it must be %s, %s, or absent", workv1.HookAnnotationKey, hook, workv1.HookBefore, workv1.HookAfter)
	}
	if kind := desired.GroupVersionKind().GroupKind(); kind != (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return fmt.Errorf("annotation %s is on a %s: a hook must be a Job of group batch", workv1.HookAnnotationKey, kind.Kind)
	}
	if _, ok, _ := unstructured.NestedFieldNoCopy(desired.Object, "spec", "ttlSecondsAfterFinished"); ok {
		return errors.New("a hook must not have spec.ttlSecondsAfterFinished: its Job tells that it has run, and stays until the next run")
	}
	m.Hook = hook
	return nil
}
