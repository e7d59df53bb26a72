package plane

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/controlplane/internal/process"
)

// Kubectl is the name of the client program.
const Kubectl = "kubectl"

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

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
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", r.state.Server(), err)
	}
	err = await(ctx, "--apply", func(ctx context.Context) error {
		list, err := client.Resource(definitions).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing CustomResourceDefinitions: %w", err)
		}
		for _, definition := range list.Items {
			if !isComplete(definition) {
				return fmt.Errorf("the CustomResourceDefinition %s is not served yet", definition.GetName())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for %s: %w", r.state.Server(), err)
	}
	return awaitMutations(ctx, typed, client)
}

// applyPath runs kubectl apply for path and retries while it fails: path may contain the definition
// of a kind and objects of that kind, and the definition is served a moment after it is applied.
func (r *runner) applyPath(ctx context.Context, path string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := r.applyOnce(ctx, path)
		if last == nil || err == nil || ctx.Err() == nil { // keep kubectl's error when ctx ends
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for --apply=%s: %w", path, cmp.Or(last, err))
	}
	return nil
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
func isComplete(definition unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch condition["type"] {
		case "Established":
			if condition["status"] == "True" {
				return true
			}
		case "NamesAccepted":
			if condition["status"] == "False" {
				return true
			}
		}
	}
	return false
}
