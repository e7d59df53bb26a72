package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// probe is the name of the objects that awaitMutations creates.
const probe = "controlplane-probe"

// awaitMutations waits until objects can be created of all kinds that MutatingAdmissionPolicies change. When the kind is of
// a CustomResourceDefinition, the API server answers 503 (Resource kind … not found) for seconds after its
// start, and after the policy has come into force, whatever the policy's failurePolicy.
func awaitMutations(
	ctx context.Context, client kubernetes.Interface, definitions apiextensionsclient.CustomResourceDefinitionInterface, objects dynamic.Interface,
) error {
	policies, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing MutatingAdmissionPolicies: %w", err)
	}
	if len(policies.Items) == 0 {
		return nil
	}
	if err := awaitPolicies(ctx, client); err != nil {
		return err
	}
	list, err := definitions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	for _, definition := range list.Items {
		for _, version := range definition.Spec.Versions {
			resource := schema.GroupVersionResource{Group: definition.Spec.Group, Version: version.Name, Resource: definition.Spec.Names.Plural}
			if !version.Served || !slices.ContainsFunc(policies.Items, func(p admissionv1.MutatingAdmissionPolicy) bool { return changes(&p, resource) }) {
				continue
			}
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(resource.GroupVersion().String())
			object.SetKind(definition.Spec.Names.Kind)
			object.SetName(probe)
			var target dynamic.ResourceInterface = objects.Resource(resource)
			if definition.Spec.Scope == apiextensionsv1.NamespaceScoped {
				target = objects.Resource(resource).Namespace(metav1.NamespaceDefault)
			}
			err := await(ctx, often, "the policies of "+resource.GroupResource().String(), func(ctx context.Context) error {
				_, err := target.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if apierrors.IsServiceUnavailable(err) {
					return err
				}
				return nil // most likely the object is invalid, which is found out later
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// changes reports whether policy is about resource.
func changes(policy *admissionv1.MutatingAdmissionPolicy, resource schema.GroupVersionResource) bool {
	if policy.Spec.MatchConstraints == nil {
		return false
	}
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	return slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return has(r.APIGroups, resource.Group) && has(r.APIVersions, resource.Version) && has(r.Resources, resource.Resource)
	})
}

// awaitPolicies waits until all MutatingAdmissionPolicies that exist are in force: until one that is
// created after them is. The API server takes them up in the order of their creation.
func awaitPolicies(ctx context.Context, client kubernetes.Interface) error {
	policies, bindings := client.AdmissionregistrationV1().MutatingAdmissionPolicies(), client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	meta := metav1.ObjectMeta{Name: probe}
	rules := []admissionv1.NamedRuleWithOperations{{ResourceNames: []string{probe}, RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}}
	ignore := admissionv1.Ignore
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &ignore, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/data", value: {"in": "force"}}]`,
		}}},
	}}
	_, err := policies.Create(ctx, policy, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) { // of a start that was interrupted
		_, err = bindings.Create(ctx, &admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: probe},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the MutatingAdmissionPolicy %s: %w", probe, err)
	}
	err = await(ctx, often, "MutatingAdmissionPolicies", func(ctx context.Context) error {
		made, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Data["in"] != "force" {
			err = errors.New("they are not in force yet")
		}
		return err
	})
	return errors.Join(err, bindings.Delete(ctx, probe, metav1.DeleteOptions{}), policies.Delete(ctx, probe, metav1.DeleteOptions{}))
}
