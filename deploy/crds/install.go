package crds

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// pollInterval is the time between two looks at a definition that is not served yet. A new one takes a few seconds.
const pollInterval = 100 * time.Millisecond

// Install creates the definitions, or brings existing ones up to date, and waits until the API server at config
// serves every one of them: established and listed in discovery, so that clients which map kinds through discovery
// find them too. A new definition takes 3 to 6 seconds.
//
// Labels and annotations that others put on an existing definition stay. Calling Install again, or from several
// processes at once, is safe. It needs the rights to get, create and update customresourcedefinitions.
//
// It ends with an error when a request is refused or fails, when a name is already taken by another definition, or
// with ctx; definitions handled so far stay. The error says which definition, and what it waited for.
func Install(ctx context.Context, config *rest.Config, definitions ...*apiextensionsv1.CustomResourceDefinition) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install CustomResourceDefinitions: client configuration: %w", err)
	}
	for _, definition := range definitions {
		if err := put(ctx, client, definition); err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s: %w", definition.Name, err)
		}
	}
	for _, definition := range definitions {
		if err := await(ctx, client, definition); err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s: %w", definition.Name, err)
		}
	}
	return nil
}

// put creates the definition or updates the one of its name. One that is being deleted is waited for, and created
// anew.
func put(ctx context.Context, client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	resource := client.ApiextensionsV1().CustomResourceDefinitions()
	var waitingFor error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		current, err := resource.Get(ctx, definition.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = resource.Create(ctx, definition, metav1.CreateOptions{})
		case err != nil:
		case current.DeletionTimestamp != nil:
			waitingFor = errors.New("an older definition of this name is still being deleted")
			return false, nil
		default:
			_, err = resource.Update(ctx, updated(current, definition), metav1.UpdateOptions{})
		}
		if lostRace(err) {
			waitingFor = err
			return false, nil
		}
		return err == nil, err
	})
	if wait.Interrupted(err) && waitingFor != nil {
		return fmt.Errorf("%w: %w", err, waitingFor)
	}
	return err
}

// lostRace tells whether another process created, changed or removed the definition between our read and our write.
func lostRace(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// updated is current with the spec, labels and annotations of wanted. What wanted does not name of labels,
// annotations and the webhook conversion stays.
func updated(current, wanted *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	next := current.DeepCopy()
	next.Spec = *wanted.Spec.DeepCopy()
	if next.Spec.Conversion == nil {
		next.Spec.Conversion = current.Spec.Conversion.DeepCopy()
	}
	next.Labels = merged(current.Labels, wanted.Labels)
	next.Annotations = merged(current.Annotations, wanted.Annotations)
	return next
}

func merged(current, wanted map[string]string) map[string]string {
	if len(wanted) == 0 {
		return current
	}
	out := map[string]string{}
	for key, value := range current {
		out[key] = value
	}
	for key, value := range wanted {
		out[key] = value
	}
	return out
}

// await returns when the definition is served, or nothing can be hoped for any more.
func await(ctx context.Context, client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	waitingFor := errors.New("not looked at yet")
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
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

// permanent is err if it is an answer that will not change by waiting, else nil.
func permanent(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// established gives what is still missing, or an error if it will stay so.
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

// discoverable is nil when all served versions of the definition show in discovery, both in the aggregated document
// that current clients read and in the one of its version.
func discoverable(client discovery.DiscoveryInterface, definition *apiextensionsv1.CustomResourceDefinition) error {
	_, aggregated, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // other groups may fail as they like
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
	for _, document := range documents {
		if document.GroupVersion != gv.String() {
			continue
		}
		for _, resource := range document.APIResources {
			if resource.Name == plural {
				return true
			}
		}
	}
	return false
}
