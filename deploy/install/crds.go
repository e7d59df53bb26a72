package install

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// CRDs creates or updates definitions, and waits until the API server serves every one of them: it
// is established and listed in discovery, so that clients which map kinds through discovery find it
// too. A new definition takes 3 to 6 seconds. CRDs needs the rights to get, create and update
// customresourcedefinitions. It fails when another definition has the names of one.
func CRDs(ctx context.Context, config *rest.Config, definitions ...*apiextensionsv1.CustomResourceDefinition) error {
	var names []string
	for _, definition := range definitions {
		if err := put(ctx, config, definition); err != nil {
			return err
		}
		names = append(names, definition.Name)
	}
	return CRDsServed(ctx, config, names...)
}

// CRDsServed waits until the API server serves the definitions with these names, as [CRDs] does. It needs
// the right to get customresourcedefinitions.
func CRDsServed(ctx context.Context, config *rest.Config, names ...string) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install CustomResourceDefinitions: client configuration: %w", err)
	}
	for _, name := range names {
		if err := await(ctx, client, name); err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s: %w", name, err)
		}
	}
	return nil
}

// await returns when the definition is served, or when it cannot be.
func await(ctx context.Context, client clientset.Interface, name string) error {
	waitingFor := errors.New("not read yet")
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			waitingFor = err
			return false, permanent(err)
		}
		if waitingFor, err = established(current); waitingFor != nil || err != nil {
			return false, err
		}
		waitingFor = discoverable(client.Discovery(), current)
		return waitingFor == nil, permanent(waitingFor)
	})
	if wait.Interrupted(err) && waitingFor != nil {
		return fmt.Errorf("%w while waiting for it to be served: %w", err, waitingFor)
	}
	return err
}

// permanent returns err if waiting does not help, else nil.
func permanent(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// established returns what is missing yet, or an error if it cannot be established.
func established(definition *apiextensionsv1.CustomResourceDefinition) (missing, err error) {
	missing = errors.New("not established")
	for _, condition := range definition.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
			return nil, fmt.Errorf("names not accepted: %s: remove the definition that has them, or rename one",
				condition.Message)
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			missing = nil
		}
	}
	return missing, nil
}

// discoverable returns nil when discovery lists all served versions of the definition, both in the
// aggregated document that current clients read and in the one of the version.
func discoverable(client discovery.DiscoveryInterface, definition *apiextensionsv1.CustomResourceDefinition) error {
	_, aggregated, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // other groups may fail
		return fmt.Errorf("discovery: %w", err)
	}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		gv := schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name}
		own, err := client.ServerResourcesForGroupVersion(gv.String())
		if err != nil {
			return fmt.Errorf("discovery of %s: %w", gv, err)
		}
		if !lists(gv, definition.Spec.Names.Plural, aggregated) ||
			!lists(gv, definition.Spec.Names.Plural, []*metav1.APIResourceList{own}) {
			return fmt.Errorf("%s of %s not in discovery", definition.Spec.Names.Plural, gv)
		}
	}
	return nil
}

func lists(gv schema.GroupVersion, plural string, documents []*metav1.APIResourceList) bool {
	return slices.ContainsFunc(documents, func(document *metav1.APIResourceList) bool {
		return document.GroupVersion == gv.String() &&
			slices.ContainsFunc(document.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
	})
}
