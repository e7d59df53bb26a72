package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/controlplane/internal/process"
)

// Kubectl is the name of the client program.
const Kubectl = "kubectl"

// apply applies Config.Apply, and waits until each CustomResourceDefinition is served or rejected, and
// admission policies let objects be created.
func (r *runner) apply(ctx context.Context) error {
	if len(r.config.Apply) == 0 {
		return nil
	}
	for _, path := range r.config.Apply {
		r.config.Progress("applying " + path)
		if err := r.applyPath(ctx, path); err != nil {
			return err
		}
	}
	config, err := r.files.administrator()
	if err != nil {
		return err
	}
	definitions, errDefinitions := apiextensionsclient.NewForConfig(config)
	objects, errObjects := dynamic.NewForConfig(config)
	client, errClient := kubernetes.NewForConfig(config)
	if err := errors.Join(errDefinitions, errObjects, errClient); err != nil {
		return fmt.Errorf("making a client for %s: %w", r.state.Server(), err)
	}
	err = await(ctx, often, "--apply", func(ctx context.Context) error {
		list, err := definitions.CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing CustomResourceDefinitions: %w", err)
		}
		for i := range list.Items {
			if !isComplete(&list.Items[i]) {
				return fmt.Errorf("the CustomResourceDefinition %s is not served yet", list.Items[i].Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return awaitMutations(ctx, client, definitions.CustomResourceDefinitions(), objects)
}

// applyPath runs kubectl apply for path and retries while it fails: path may contain the definition
// of a kind and objects of that kind, and the definition is served a moment after it is applied.
func (r *runner) applyPath(ctx context.Context, path string) error {
	return await(ctx, time.Second, "--apply="+path, func(ctx context.Context) error { return r.applyOnce(ctx, path) })
}

func (r *runner) applyOnce(ctx context.Context, path string) error {
	child, err := process.Start(process.Spec{
		Name: Kubectl, Dir: r.files.dir, Log: r.files.log(Kubectl),
		Args:     []string{"--kubeconfig=kubeconfig", "apply", "--server-side", "--force-conflicts", source(path)},
		Lifeline: r.lifeline, Keep: []*os.File{r.lock},
	})
	if err != nil {
		return err
	}
	return child.Finish(ctx)
}

// source returns kubectl's flag for path.
func source(path string) string {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return "--kustomize=" + path
		}
	}
	return "--filename=" + path
}

// isComplete reports whether a definition is served, or rejected because another definition has its
// names.
func isComplete(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) || apihelpers.IsCRDConditionFalse(definition, apiextensionsv1.NamesAccepted)
}
