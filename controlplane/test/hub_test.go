package test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const widgetCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.workwire.dev}
spec:
  group: test.workwire.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

const sizePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: widget-size}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [test.workwire.dev], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
  validations:
  - {expression: "object.spec.size < 10", message: "widgets are smaller than 10"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: widget-size}
spec: {policyName: widget-size, validationActions: [Deny]}
`

var widgets = schema.GroupVersionResource{Group: "test.workwire.dev", Version: "v1", Resource: "widgets"}

func TestHubServesAnAPI(t *testing.T) { onStores(t, testHubServesAnAPI) }

func testHubServesAnAPI(t *testing.T, s store) {
	ctx := t.Context()
	p := up(t, append(s.args, "--role=hub", "--dir="+t.TempDir())...)
	kubectl := kubectl(t, p.kubeconfig)
	client := p.client()
	dynamicClient, err := dynamic.NewForConfig(p.config())
	noError(t, err)

	if _, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a hub serves pods: error %v", err)
	}
	kubectl(widgetCRD+"---"+sizePolicy, "apply", "-f-")
	kubectl("", "wait", "--for=condition=Established", "crd/widgets.test.workwire.dev", "--timeout=180s")
	kubectl("", "create", "namespace", "plant")

	create := func(name string, size int64) (*unstructured.Unstructured, error) {
		return dynamicClient.Resource(widgets).Namespace("plant").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "test.workwire.dev/v1", "kind": "Widget",
			"metadata": map[string]any{"generateName": name}, "spec": map[string]any{"size": size},
		}}, metav1.CreateOptions{})
	}
	var owner *unstructured.Unstructured
	eventually(t, "the resource is served", func() (err error) { owner, err = create("small-", 1); return err })
	eventually(t, "the policy refuses", func() error {
		if _, err := create("big-", 11); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("creating a big widget: %w", errors.Join(err, errors.New("want a refusal")))
		}
		return nil
	})

	_, err = client.CoreV1().ConfigMaps("plant").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
		}},
	}}, metav1.CreateOptions{})
	noError(t, err)
	noError(t, dynamicClient.Resource(widgets).Namespace("plant").Delete(ctx, owner.GetName(), metav1.DeleteOptions{}))
	eventually(t, "what the widget owned is collected", func() error {
		_, err := client.CoreV1().ConfigMaps("plant").Get(ctx, "owned", metav1.GetOptions{})
		return wantGone(err)
	})

	// Deleting a namespace deletes what it holds, of custom types too.
	if _, err := create("left-", 2); err != nil {
		t.Fatal(err)
	}
	noError(t, client.CoreV1().Namespaces().Delete(ctx, "plant", metav1.DeleteOptions{}))
	eventually(t, "the namespace goes", func() error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "plant", metav1.GetOptions{})
		return wantGone(err)
	})

	kubectl("", "create", "serviceaccount", "robot")
	token := kubectl("", "create", "token", "robot")
	if len(token) < 100 {
		t.Errorf("a ServiceAccount's token is %q", token)
	}
	p.stop()
}

func wantGone(err error) error {
	switch {
	case err == nil:
		return errors.New("it is still there")
	case apierrors.IsNotFound(err):
		return nil
	}
	return err
}
